// Small linear algebra: 4 x 4 matrices by columns, as in WebGL, and unit quaternions [x, y, z, w].

function multiply(a, b) {
  const result = new Float32Array(16);
  for (let column = 0; column < 4; column++) {
    for (let row = 0; row < 4; row++) {
      let sum = 0;
      for (let k = 0; k < 4; k++) sum += a[4 * k + row] * b[4 * column + k];
      result[4 * column + row] = sum;
    }
  }
  return result;
}

function perspective(slope, aspect, near, far) {
  const result = new Float32Array(16);
  result[0] = 1 / (slope * aspect);
  result[5] = 1 / slope;
  result[10] = (far + near) / (near - far);
  result[11] = -1;
  result[14] = (2 * far * near) / (near - far);
  return result;
}

// Rotate, then translate.
function placement(q, shift) {
  const [x, y, z, w] = q;
  return new Float32Array([
    1 - 2 * (y * y + z * z), 2 * (x * y + z * w), 2 * (x * z - y * w), 0,
    2 * (x * y - z * w), 1 - 2 * (x * x + z * z), 2 * (y * z + x * w), 0,
    2 * (x * z + y * w), 2 * (y * z - x * w), 1 - 2 * (x * x + y * y), 0,
    shift[0], shift[1], shift[2], 1,
  ]);
}

function turnAbout(axis, angle) {
  const s = Math.sin(angle / 2);
  return [axis[0] * s, axis[1] * s, axis[2] * s, Math.cos(angle / 2)];
}

// First b, then a; normalized.
function compose(a, b) {
  const q = [
    a[3] * b[0] + a[0] * b[3] + a[1] * b[2] - a[2] * b[1],
    a[3] * b[1] - a[0] * b[2] + a[1] * b[3] + a[2] * b[0],
    a[3] * b[2] + a[0] * b[1] - a[1] * b[0] + a[2] * b[3],
    a[3] * b[3] - a[0] * b[0] - a[1] * b[1] - a[2] * b[2],
  ];
  const length = Math.hypot(...q);
  return q.map((part) => part / length);
}

// The vector that a placement rotates into v: the transpose of its rotation.
function turnBack(m, v) {
  return [0, 1, 2].map((k) => m[4 * k] * v[0] + m[4 * k + 1] * v[1] + m[4 * k + 2] * v[2]);
}
