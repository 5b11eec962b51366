// The picture, drawn by WebGL 2: a coloured surface or cloud, its edges, the anchors, two marks.

const BULGE = 0.4; // depth of the rim of a usual point below its centre, relative to its radius
const LEAST_RADIUS = 1.5; // smallest radius of a point in pixels
const CURVE_RADIUS = 4.5; // the same in one dimension, where only points are visible

const SURFACE_VERTEX = `#version 300 es
in vec3 position;
in vec3 normal;
in float value;
uniform mat4 both, view;
out vec3 facing;
out float place, known;
void main() {
  gl_Position = both * vec4(position, 1.0);
  facing = mat3(view) * normal;
  known = value < 0.0 ? 0.0 : 1.0;
  place = max(value, 0.0);
}`;
const SURFACE_FRAGMENT = `#version 300 es
precision highp float;
in vec3 facing;
in float place, known;
uniform sampler2D ramp;
uniform vec3 grey;
out vec4 colour;
void main() {
  vec3 n = normalize(facing);
  n = n.z < 0.0 ? -n : n;
  float light = 0.66 + 0.36 * max(0.0, dot(n, normalize(vec3(-0.35, 0.55, 0.8))));
  // The mean of the corners that have a value; grey where most of the weight is on others.
  vec3 base = known < 0.5 ? grey : texture(ramp, vec2((place / known * 255.0 + 0.5) / 256.0, 0.5)).rgb;
  // A thin veil at the rim separates dark and pale regions from any background.
  float rim = pow(1.0 - n.z, 3.0);
  colour = vec4(mix(base * min(light, 1.0), vec3(0.5), 0.35 * rim), 1.0);
}`;
// A point of a cloud is a disc in the plane of its neighbours, or a ball if they have no plane. Its depth depends only on
// the distance from the centre, so that each place has the colour of the nearest point and a surface looks closed.
// Discs are squares without corners: WebGL points have a maximum size, and disappear if their centre is off the screen.
const CLOUD_VERTEX = `#version 300 es
in vec3 position;
in vec3 normal;
in float value, radius;
uniform mat4 both, view;
uniform vec3 screen; // width and height in pixels, and pixels per unit of length at distance 1
uniform vec2 sizes, depths;
out vec3 facing;
out vec2 p;
out float place, far, depth, reach;
void main() {
  gl_Position = both * vec4(position, 1.0);
  float pixels = clamp(screen.z * radius / gl_Position.w, sizes.x, sizes.y);
  p = vec2(gl_VertexID & 1, gl_VertexID >> 1) * 2.0 - 1.0;
  gl_Position.xy += p * pixels * 2.0 / screen.xy * gl_Position.w;
  reach = pixels * gl_Position.w / screen.z;
  facing = mat3(view) * normal;
  place = value;
  depth = gl_Position.w;
  far = clamp((depth - depths.x) / (depths.y - depths.x), 0.0, 1.0);
}`;
const CLOUD_FRAGMENT = `#version 300 es
precision highp float;
in vec3 facing;
in vec2 p;
in float place, far, depth, reach;
uniform sampler2D ramp;
uniform vec3 background, grey;
uniform vec3 lens; // usual radius of a point, and two numbers that convert a distance to a depth
out vec4 colour;
void main() {
  float length2 = dot(facing, facing), rise = 0.0, light = 1.0;
  if (length2 > 0.0) {
    vec3 n = facing * inversesqrt(length2);
    n = n.z < 0.0 ? -n : n;
    rise = -dot(n.xy, p) / max(n.z, 0.3);
    light = min(1.0, 0.66 + 0.36 * max(0.0, dot(n, normalize(vec3(-0.35, 0.55, 0.8)))));
  }
  float r2 = dot(p, p) + rise * rise;
  if (r2 > 1.0) discard;
  float apart = r2 * reach / lens.x;
  float w = max(depth + reach * (${BULGE} * apart - rise), 1e-3 * depth);
  gl_FragDepth = clamp(0.5 * (lens.z / w - lens.y) + 0.5, 0.0, 1.0);
  vec3 base = place < 0.0 ? grey : texture(ramp, vec2((place * 255.0 + 0.5) / 256.0, 0.5)).rgb;
  base *= light * (1.0 - 0.1 * min(1.0, apart * reach / lens.x));
  colour = vec4(mix(base, background, 0.2 * far), 1.0);
}`;
const MARK_VERTEX = `#version 300 es
in vec3 position;
uniform mat4 both;
uniform vec3 lift;
uniform float size;
void main() {
  gl_Position = both * vec4(position, 1.0);
  vec4 nearer = both * vec4(position + lift, 1.0); // for the depth only: a surface must not hide a mark that lies on it
  gl_Position.z = nearer.z / nearer.w * gl_Position.w;
  gl_PointSize = size;
}`;
const MARK_FRAGMENT = `#version 300 es
precision highp float;
uniform vec3 inner, outer;
uniform float size, hole, rim, alpha;
out vec4 colour;
void main() {
  float r = 0.5 * size * length(2.0 * gl_PointCoord - 1.0);
  float edge = 0.5 * size - 1.0;
  float shown = clamp(edge - r + 0.5, 0.0, 1.0) * clamp(r - hole * size + 0.5, 0.0, 1.0);
  float dark = max(clamp(r - edge + rim + 0.5, 0.0, 1.0), hole > 0.0 ? clamp(hole * size + rim - r + 0.5, 0.0, 1.0) : 0.0);
  float a = alpha * shown;
  colour = vec4(mix(inner, outer, dark) * a, a);
}`;
const LINE_VERTEX = `#version 300 es
in vec3 position;
uniform mat4 both;
void main() { gl_Position = both * vec4(position, 1.0); gl_Position.z -= 0.0004 * gl_Position.w; }`;
const LINE_FRAGMENT = `#version 300 es
precision highp float;
out vec4 colour;
void main() { colour = vec4(0.0, 0.0, 0.0, 0.28); }`;

function makeProgram(gl, vertexText, fragmentText) {
  const program = gl.createProgram();
  for (const [kind, text] of [[gl.VERTEX_SHADER, vertexText], [gl.FRAGMENT_SHADER, fragmentText]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost()) throw new Error(gl.getProgramInfoLog(program));
  const uniforms = {};
  for (let k = 0; k < gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS); k++) {
    const { name } = gl.getActiveUniform(program, k);
    uniforms[name] = gl.getUniformLocation(program, name);
  }
  return { program, uniforms };
}

// Normals of vertices: the sum of the normals of their triangles, weighted by area.
function normalsOf(positions, faces) {
  const normals = new Float32Array(positions.length);
  for (let f = 0; f < faces.length; f += 3) {
    const [a, b, c] = [3 * faces[f], 3 * faces[f + 1], 3 * faces[f + 2]];
    const u = [0, 1, 2].map((k) => positions[b + k] - positions[a + k]);
    const v = [0, 1, 2].map((k) => positions[c + k] - positions[a + k]);
    const normal = [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]];
    for (const corner of [a, b, c]) for (let k = 0; k < 3; k++) normals[corner + k] += normal[k];
  }
  return normals;
}

function edgesOf(faces) {
  const edges = [];
  for (let f = 0; f < faces.length; f += 3) {
    for (let k = 0; k < 3; k++) {
      const [a, b] = [faces[f + k], faces[f + ((k + 1) % 3)]];
      edges.push(Math.min(a, b), Math.max(a, b)); // inner edges appear twice, which is harmless
    }
  }
  return new Uint32Array(edges);
}

class Scene {
  constructor(canvas, model, camera) {
    this.gl = canvas.getContext('webgl2', { antialias: true, alpha: true });
    Object.assign(this, { canvas, model, camera });
    this.background = [1, 1, 1];
    this.marks = { anchors: true, edges: false, ring: true, x: 0, anchor: 0 };
    this.usualRadius = model.radii.length ? Float32Array.from(model.radii).sort()[model.n >> 1] : 0;
    this.leastRadius = model.meta.dimensions === 1 ? CURVE_RADIUS : LEAST_RADIUS;
    this.places = new Float32Array(model.n);
    this.ramp = null;
    this.build();
    canvas.addEventListener('webglcontextlost', (event) => event.preventDefault());
    canvas.addEventListener('webglcontextrestored', () => {
      this.build();
      this.request();
    });
  }

  build() {
    const { gl, model } = this;
    this.programs = {
      surface: makeProgram(gl, SURFACE_VERTEX, SURFACE_FRAGMENT),
      cloud: makeProgram(gl, CLOUD_VERTEX, CLOUD_FRAGMENT),
      mark: makeProgram(gl, MARK_VERTEX, MARK_FRAGMENT),
      line: makeProgram(gl, LINE_VERTEX, LINE_FRAGMENT),
    };
    this.valueBuffer = this.buffer(this.places, gl.DYNAMIC_DRAW);
    const positions = { position: [this.buffer(model.positions), 3] };
    const value = { value: [this.valueBuffer, 1] };
    if (model.faces.length) {
      const normal = { normal: [this.buffer(normalsOf(model.positions, model.faces)), 3] };
      this.surface = this.vertexArray(this.programs.surface, { ...positions, ...value, ...normal }, model.faces);
      this.edges = edgesOf(model.faces);
      this.lines = this.vertexArray(this.programs.line, positions, this.edges);
    } else {
      const normal = { normal: [this.buffer(Float32Array.from(model.normals)), 3] };
      const radius = { radius: [this.buffer(model.radii), 1] };
      this.cloud = this.vertexArray(this.programs.cloud, { ...positions, ...value, ...normal, ...radius }, null, 1);
    }
    this.points = this.vertexArray(this.programs.mark, positions);
    this.anchors = this.vertexArray(this.programs.mark, { position: [this.buffer(model.anchors), 3] });
    this.texture = gl.createTexture();
    if (this.ramp) this.setColours(this.ramp);
    gl.enable(gl.DEPTH_TEST);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  buffer(data, usage = this.gl.STATIC_DRAW) {
    const buffer = this.gl.createBuffer();
    this.gl.bindBuffer(this.gl.ARRAY_BUFFER, buffer);
    this.gl.bufferData(this.gl.ARRAY_BUFFER, data, usage);
    return buffer;
  }

  // `divisor` is 1 if each entry is drawn as a whole shape.
  vertexArray({ program }, attributes, indices = null, divisor = 0) {
    const { gl } = this;
    const array = gl.createVertexArray();
    gl.bindVertexArray(array);
    for (const [name, [buffer, size]] of Object.entries(attributes)) {
      const location = gl.getAttribLocation(program, name);
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.enableVertexAttribArray(location);
      gl.vertexAttribPointer(location, size, gl.FLOAT, false, 0, 0);
      gl.vertexAttribDivisor(location, divisor);
    }
    if (indices) {
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer());
      gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, indices, gl.STATIC_DRAW);
    }
    gl.bindVertexArray(null);
    return array;
  }

  setColours(ramp) {
    const { gl } = this;
    this.ramp = ramp;
    gl.bindTexture(gl.TEXTURE_2D, this.texture);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, 256, 1, 0, gl.RGBA, gl.UNSIGNED_BYTE, ramp);
    for (const name of ['MIN', 'MAG']) gl.texParameteri(gl.TEXTURE_2D, gl[`TEXTURE_${name}_FILTER`], gl.LINEAR);
    for (const name of ['S', 'T']) gl.texParameteri(gl.TEXTURE_2D, gl[`TEXTURE_WRAP_${name}`], gl.CLAMP_TO_EDGE);
  }

  setPlaces(places) {
    const { gl } = this;
    this.places = places;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.valueBuffer);
    gl.bufferSubData(gl.ARRAY_BUFFER, 0, places);
  }

  // Draw once in the next frame, even after several requests.
  request() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  get ratio() {
    return Math.min(window.devicePixelRatio || 1, 2);
  }

  // Radius of a point of a cloud in pixels of the window; the same rule as in the shader.
  pixelsOf(radius, distance) {
    const pixels = (radius * this.camera.height) / (2 * SLOPE * distance);
    return Math.min(this.largestRadius, Math.max(this.leastRadius, pixels));
  }

  // A disc is never larger than the window.
  get largestRadius() {
    return Math.max(this.canvas.clientWidth, this.canvas.clientHeight);
  }

  draw() {
    const { gl, canvas, camera, ratio } = this;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width || !height) return;
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
    camera.resize(width, height);
    gl.viewport(0, 0, wide, high);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    const matrices = camera.matrices();
    gl.bindTexture(gl.TEXTURE_2D, this.texture);
    if (this.surface) this.drawSurface(matrices);
    else this.drawCloud(matrices);
    this.drawMarks(matrices);
  }

  use({ program, uniforms }, both) {
    this.gl.useProgram(program);
    this.gl.uniformMatrix4fv(uniforms.both, false, both);
    return uniforms;
  }

  drawSurface({ both, view }) {
    const { gl, model } = this;
    const uniforms = this.use(this.programs.surface, both);
    gl.uniformMatrix4fv(uniforms.view, false, view);
    gl.uniform3fv(uniforms.grey, model.meta.grey);
    gl.bindVertexArray(this.surface);
    gl.drawElements(gl.TRIANGLES, model.faces.length, gl.UNSIGNED_INT, 0);
    if (!this.marks.edges) return;
    this.use(this.programs.line, both);
    gl.enable(gl.BLEND);
    gl.bindVertexArray(this.lines);
    gl.drawElements(gl.LINES, this.edges.length, gl.UNSIGNED_INT, 0);
    gl.disable(gl.BLEND);
  }

  drawCloud({ both, view, projection }) {
    const { gl, camera, canvas, ratio } = this;
    const uniforms = this.use(this.programs.cloud, both);
    gl.uniformMatrix4fv(uniforms.view, false, view);
    gl.uniform3f(uniforms.screen, canvas.width, canvas.height, canvas.height / (2 * SLOPE));
    gl.uniform3f(uniforms.lens, this.usualRadius, projection[10], projection[14]);
    gl.uniform2f(uniforms.sizes, ratio * this.leastRadius, ratio * this.largestRadius);
    gl.uniform2f(uniforms.depths, camera.distance - 0.3 * camera.radius, camera.distance + camera.radius);
    gl.uniform3fv(uniforms.background, this.background);
    gl.uniform3fv(uniforms.grey, this.model.meta.grey);
    gl.bindVertexArray(this.cloud);
    gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, this.model.n);
  }

  // Anchors, then the current anchor and the selected point, which are visible even if they are hidden.
  drawMarks({ both, view }) {
    const { gl, marks, model, camera } = this;
    const uniforms = this.use(this.programs.mark, both);
    gl.enable(gl.BLEND);
    gl.depthMask(false);
    const lift = (size) => gl.uniform3fv(uniforms.lift, turnBack(view, [0, 0, size]));
    lift(Math.min(0.7 * model.meta.spacing, 0.03 * camera.radius));
    if (marks.anchors) {
      gl.bindVertexArray(this.anchors);
      this.style(uniforms, [1, 1, 1], 7, 0, 1);
      gl.drawArrays(gl.POINTS, 0, model.m);
    }
    lift(0.06 * camera.radius);
    for (const [test, alpha] of [[gl.GREATER, 0.3], [gl.LEQUAL, 1]]) {
      gl.depthFunc(test);
      if (marks.anchor >= 0) {
        gl.bindVertexArray(this.anchors);
        this.style(uniforms, [0.1, 0.85, 0.75], 12, 0, alpha);
        gl.drawArrays(gl.POINTS, marks.anchor, 1);
      }
      if (!marks.ring) continue;
      gl.bindVertexArray(this.points);
      this.style(uniforms, [1, 1, 1], 24, 0.24, alpha);
      gl.drawArrays(gl.POINTS, marks.x, 1);
    }
    gl.depthFunc(gl.LESS);
    gl.depthMask(true);
    gl.disable(gl.BLEND);
  }

  style(uniforms, inner, size, hole, alpha) {
    const { gl } = this;
    gl.uniform3fv(uniforms.inner, inner);
    gl.uniform3f(uniforms.outer, 0.05, 0.05, 0.08);
    gl.uniform1f(uniforms.size, size * this.ratio);
    gl.uniform1f(uniforms.hole, hole);
    gl.uniform1f(uniforms.rim, Math.min(1.4, 0.12 * size) * this.ratio);
    gl.uniform1f(uniforms.alpha, alpha);
  }
}
