"""Arrays in npy, npz and csv files, read and written in blocks of rows."""
