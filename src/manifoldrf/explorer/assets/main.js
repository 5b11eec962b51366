// Start: unpack, draw, and provide a small interface for tests.

function say(text) {
  byId('message').textContent = text;
  byId('message').hidden = false;
}

// The point closest to the viewer.
function facing(model, camera) {
  const { view } = camera.matrices();
  let [best, most] = [0, -Infinity];
  for (let i = 0; i < model.n; i++) {
    const [x, y, z] = model.positions.subarray(3 * i, 3 * i + 3);
    const [u, v, w] = [0, 1, 2].map((k) => view[k] * x + view[4 + k] * y + view[8 + k] * z);
    const score = w - 0.7 * Math.hypot(u, v);
    if (score > most) [best, most] = [i, score];
  }
  return best;
}

async function start() {
  const canvas = byId('canvas');
  if (!window.WebGL2RenderingContext || !document.createElement('canvas').getContext('webgl2')) {
    return say('This page needs WebGL 2, which is missing or switched off in this browser.');
  }
  if (!window.DecompressionStream) return say('This browser is too old for this page: it lacks DecompressionStream.');
  const meta = JSON.parse(byId('meta').textContent);
  const model = new Model(meta, await readArrays(meta.arrays, byId('data').textContent));
  const camera = new Camera(model.positions, meta.dimensions < 3, model.faces.length ? 0 : meta.spacing);
  model.firstPoint = facing(model, camera);
  const shown = new Interface(model, new Scene(canvas, model, camera), camera);
  const index = (id) => model.indexOfId.get(id) ?? 0;
  window.explorer = Object.freeze({
    valueAt: (layer, x, y, m = model.m) => model.field(layer, index(x), m)[index(y)],
    fieldOf: (layer, x, m = model.m) => Array.from(model.field(layer, index(x), m)),
    onScreen: (id) => onScreen(shown.scene, index(id)),
    anchorOf: (x) => model.anchorIds[model.nearest[index(x)]],
    get ids() { return Array.from(model.ids); },
    get state() { return { ...shown.state, point: model.ids[shown.state.point], hash: shown.hash }; },
  });
  return undefined;
}

start().catch((error) => say(`The page could not be shown: ${error.message}`));
