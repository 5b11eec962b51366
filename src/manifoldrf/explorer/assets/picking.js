// Find the point under the cursor.

const REACH = 12; // search radius in pixels if no point of a cloud is directly under the cursor

function onScreen(scene, index, positions = scene.model.positions) {
  const { both } = scene.camera.matrices();
  const [x, y, z] = positions.subarray(3 * index, 3 * index + 3);
  const [u, v, , w] = [0, 1, 2, 3].map((k) => both[k] * x + both[4 + k] * y + both[8 + k] * z + both[12 + k]);
  const [width, height] = [scene.canvas.clientWidth, scene.canvas.clientHeight];
  return { x: (0.5 + (0.5 * u) / w) * width, y: (0.5 - (0.5 * v) / w) * height, depth: w };
}

function pick(scene, x, y) {
  return scene.surface ? pickOnSurface(scene, x, y) : pickInCloud(scene, x, y);
}

// The point whose disc or ball is visible at the cursor, by the depths of the shader; otherwise the nearest centre.
function pickInCloud(scene, x, y) {
  const { model, canvas } = scene;
  const { both, view } = scene.camera.matrices();
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  let [front, covered, nearest, closest] = [Infinity, -1, REACH * REACH, -1];
  const p = model.positions;
  for (let i = 0; i < model.n; i++) {
    const [a, b, c] = [p[3 * i], p[3 * i + 1], p[3 * i + 2]];
    const w = both[3] * a + both[7] * b + both[11] * c + both[15];
    if (w <= 0) continue;
    const u = x - (0.5 + (0.5 * (both[0] * a + both[4] * b + both[8] * c + both[12])) / w) * width;
    const v = y - (0.5 - (0.5 * (both[1] * a + both[5] * b + both[9] * c + both[13])) / w) * height;
    const gap = u * u + v * v;
    if (gap < nearest) [nearest, closest] = [gap, i];
    const radius = scene.pixelsOf(model.radii[i], w);
    if (gap > radius * radius) continue;
    const rise = riseOf(model.normals.subarray(3 * i, 3 * i + 3), view, u / radius, -v / radius);
    const share = gap / (radius * radius) + rise * rise;
    const reach = (radius * 2 * SLOPE * w) / height;
    const depth = w + reach * ((BULGE * share * reach) / scene.usualRadius - rise);
    if (share <= 1 && depth < front) [front, covered] = [depth, i];
  }
  return covered >= 0 ? covered : closest;
}

// Depth of the plane of a disc at a position, relative to its centre.
function riseOf(normal, view, u, v) {
  const [x, y, z] = [0, 1, 2].map((k) => view[k] * normal[0] + view[4 + k] * normal[1] + view[8 + k] * normal[2]);
  const length = Math.hypot(x, y, z);
  if (length === 0) return 0;
  const sign = z < 0 ? -1 : 1;
  return (-sign * (x * u + y * v)) / length / Math.max(Math.abs(z) / length, 0.3);
}

// The corner with the largest barycentric weight where the line of sight first meets a triangle.
function pickOnSurface(scene, x, y) {
  const { model, canvas, camera } = scene;
  const { view } = camera.matrices();
  const height = canvas.clientHeight;
  const across = ((2 * x - canvas.clientWidth) / height) * SLOPE;
  const ray = turnBack(view, [across, (1 - (2 * y) / height) * SLOPE, -1]);
  const eye = turnBack(view, [-view[12], -view[13], -view[14]]);
  const { positions: p, faces } = model;
  let [first, found] = [Infinity, -1];
  for (let f = 0; f < faces.length; f += 3) {
    const [a, b, c] = [3 * faces[f], 3 * faces[f + 1], 3 * faces[f + 2]];
    const [ux, uy, uz] = [p[b] - p[a], p[b + 1] - p[a + 1], p[b + 2] - p[a + 2]];
    const [vx, vy, vz] = [p[c] - p[a], p[c + 1] - p[a + 1], p[c + 2] - p[a + 2]];
    const [qx, qy, qz] = [ray[1] * vz - ray[2] * vy, ray[2] * vx - ray[0] * vz, ray[0] * vy - ray[1] * vx];
    const volume = ux * qx + uy * qy + uz * qz;
    if (volume === 0) continue;
    const [sx, sy, sz] = [eye[0] - p[a], eye[1] - p[a + 1], eye[2] - p[a + 2]];
    const second = (sx * qx + sy * qy + sz * qz) / volume;
    if (second < 0 || second > 1) continue;
    const [rx, ry, rz] = [sy * uz - sz * uy, sz * ux - sx * uz, sx * uy - sy * ux];
    const third = (ray[0] * rx + ray[1] * ry + ray[2] * rz) / volume;
    if (third < 0 || second + third > 1) continue;
    const along = (vx * rx + vy * ry + vz * rz) / volume;
    if (along <= 0 || along >= first) continue;
    first = along;
    const own = 1 - second - third;
    found = own >= second && own >= third ? faces[f] : second >= third ? faces[f + 1] : faces[f + 2];
  }
  return found;
}
