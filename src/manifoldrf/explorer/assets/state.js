// The state of the page, and its form as a link.

const FLAGS = ['log', 'same', 'ring', 'anchors', 'edges'];

function firstState(model) {
  return {
    point: model.firstPoint,
    layer: model.layers[0],
    features: model.m,
    log: false,
    same: false,
    ring: true,
    decades: model.decades('kernel'),
    anchors: model.m <= 600 && model.own.size === 0, // they would cover the fields
    edges: false,
  };
}

function writeHash(state, model, camera) {
  const first = firstState(model);
  const parts = [['p', model.ids[state.point]], ['layer', state.layer]];
  if (state.features !== first.features) parts.push(['m', state.features]);
  for (const name of FLAGS) {
    if (state[name] !== first[name]) parts.push([name, Number(state[name])]);
  }
  if (state.decades !== first.decades) parts.push(['decades', state.decades]);
  const view = camera.toNumbers();
  if (view) parts.push(['view', view.join(',')]);
  return '#' + parts.map(([name, value]) => `${name}=${value}`).join('&');
}

// Invalid parts of a link are ignored.
function readHash(hash, model, camera) {
  const state = firstState(model);
  const given = new URLSearchParams(hash.replace(/^#/, ''));
  const whole = (name, low, high) => {
    const text = given.get(name) ?? '';
    const number = /^\d{1,10}$/.test(text) ? Number(text) : NaN;
    return number >= low && number <= high ? number : null;
  };
  state.point = model.indexOfId.get(whole('p', 0, 2 ** 32)) ?? state.point;
  if (model.has(given.get('layer'))) state.layer = given.get('layer');
  state.features = whole('m', 1, model.m) ?? state.features;
  state.decades = whole('decades', 1, model.decades('kernel')) ?? state.decades;
  for (const name of model.faces.length ? FLAGS : FLAGS.filter((flag) => flag !== 'edges')) {
    const flag = whole(name, 0, 1);
    if (flag !== null) state[name] = flag === 1;
  }
  camera.reset();
  if (given.has('view')) camera.fromNumbers(given.get('view').split(',').map(Number));
  return state;
}
