// The camera: a rotation, a zoom and a translation.

const SLOPE = Math.tan((17.5 * Math.PI) / 180); // of half the angle of view
const ZOOMS = [0.03, 4];
const MARGIN = 1.1; // around the space in the initial view

class Camera {
  // `spare` is the room around every point for its disc or ball.
  constructor(positions, flat, spare) {
    this.radius = spare || 1e-12;
    for (let i = 0; i < positions.length; i += 3) {
      this.radius = Math.max(this.radius, Math.hypot(positions[i], positions[i + 1], positions[i + 2]));
    }
    const plain = Camera.ranges(positions);
    this.home = flat ? [0, 0, 0, 1] : Camera.firstTurn(plain.high.map((end, k) => end - plain.low[k]));
    this.turned = Camera.turned(positions, this.home);
    const { low, high } = Camera.ranges(this.turned);
    this.spare = spare;
    this.middle = [0, 1].map((k) => -(low[k] + high[k]) / 2 / this.radius);
    this.resize(1, 1);
    this.reset();
  }

  static turned(positions, turn) {
    const matrix = placement(turn, [0, 0, 0]);
    const result = new Float32Array(positions.length);
    for (let i = 0; i < positions.length; i += 3) {
      for (let k = 0; k < 3; k++) {
        result[i + k] = matrix[k] * positions[i] + matrix[4 + k] * positions[i + 1] + matrix[8 + k] * positions[i + 2];
      }
    }
    return result;
  }

  static ranges(positions) {
    const low = [Infinity, Infinity, Infinity];
    const high = [-Infinity, -Infinity, -Infinity];
    for (let i = 0; i < positions.length; i++) {
      low[i % 3] = Math.min(low[i % 3], positions[i]);
      high[i % 3] = Math.max(high[i % 3], positions[i]);
    }
    return { low, high };
  }

  // The smallest distance from which a window of this shape shows every point, with a margin.
  fit(aspect) {
    const [x, y] = this.middle.map((part) => part * this.radius);
    const slope = SLOPE / MARGIN;
    let distance = 0;
    for (let i = 0; i < this.turned.length; i += 3) {
      const across = (Math.abs(this.turned[i] + x) + this.spare) / (slope * aspect);
      const up = (Math.abs(this.turned[i + 1] + y) + this.spare) / slope;
      distance = Math.max(distance, Math.max(across, up) + this.turned[i + 2]);
    }
    return Math.max(distance, 0.1 * this.radius);
  }

  // Along the shortest axis, a little from the side and from above.
  static firstTurn(extents) {
    const shortest = extents.indexOf(Math.min(...extents));
    let turn = [0, 0, 0, 1];
    if (shortest === 0) turn = compose(turnAbout([1, 0, 0], -Math.PI / 2), turnAbout([0, 0, 1], -Math.PI / 2));
    if (shortest === 1) turn = turnAbout([1, 0, 0], -Math.PI / 2);
    const tilt = shortest === 2 ? -0.85 : 0.35;
    const even = Math.max(...extents) < 1.5 * Math.min(...extents);
    if (even) return compose(turnAbout([1, 0, 0], 0.3), compose(turnAbout([0, 1, 0], -0.35), turn));
    return compose(turnAbout([1, 0, 0], tilt), turn);
  }

  reset() {
    this.turn = this.home;
    this.zoom = 1;
    this.shift = [...this.middle];
  }

  resize(width, height) {
    this.height = height;
    if (this.aspect === width / height) return;
    this.aspect = width / height;
    this.whole = this.fit(this.aspect);
  }

  get distance() {
    return this.zoom * this.whole;
  }

  matrices() {
    const distance = this.distance;
    const near = Math.max(distance - 2 * this.radius, 0.002 * distance);
    const view = placement(this.turn, [this.shift[0] * this.radius, this.shift[1] * this.radius, -distance]);
    const projection = perspective(SLOPE, this.aspect, near, distance + 4 * this.radius);
    return { view, projection, both: multiply(projection, view) };
  }

  rotate(dx, dy) {
    const step = compose(turnAbout([1, 0, 0], dy), turnAbout([0, 1, 0], dx));
    this.turn = compose(step, this.turn);
  }

  zoomBy(factor) {
    this.zoom = Math.min(ZOOMS[1], Math.max(ZOOMS[0], this.zoom * factor));
  }

  // By pixels of the window.
  shiftBy(dx, dy) {
    const unit = (2 * SLOPE * this.distance) / this.height / this.radius;
    this.shift = [this.shift[0] + dx * unit, this.shift[1] - dy * unit].map((part) => Math.min(3, Math.max(-3, part)));
  }

  // Seven numbers for a link; null in the initial view.
  toNumbers() {
    const moved = this.zoom !== 1 || this.shift.some((part, k) => part !== this.middle[k]) || this.turn.some((part, k) => part !== this.home[k]);
    return moved ? [...this.turn, this.zoom, ...this.shift].map((part) => Number(part.toFixed(4))) : null;
  }

  fromNumbers(numbers) {
    const length = Math.hypot(...numbers.slice(0, 4));
    // A length that overflows would give a rotation of zeros, which cannot be changed any more.
    if (numbers.length !== 7 || !numbers.every(Number.isFinite) || !Number.isFinite(length)) return;
    if (length < 0.1 || numbers[4] <= 0) return;
    this.turn = numbers.slice(0, 4).map((part) => part / length);
    this.zoom = 1;
    this.zoomBy(numbers[4]);
    this.shift = numbers.slice(5).map((part) => Math.min(3, Math.max(-3, part)));
  }
}
