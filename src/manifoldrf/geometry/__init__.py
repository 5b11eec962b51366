"""Where the data lives: manifolds with closed forms, triangle meshes, graphs."""
