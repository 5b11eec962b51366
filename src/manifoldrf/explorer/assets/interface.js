// The controls: their texts and actions.

const NAMES = {
  kernel: 'K(x, y)',
  feature: 'g(y, ω)',
  exact: 'exact(y, ω)',
  difference: 'g − exact',
};
const DRAG = 5; // pixels that the pointer may move during a click
const TURN = 0.0075; // radians per pixel of a drag
const SLIDES = 200; // maximum number of positions of the logarithmic feature slider
const BESIDE = 20; // pixels that the text of a tick may extend beyond the bar
const APART = 6; // pixels between texts of ticks

const byId = (id) => document.getElementById(id);

// Write only changes: otherwise a screen reader would read the same text again.
function write(id, text) {
  if (byId(id).textContent !== text) byId(id).textContent = text;
}

// Numbers of features at the positions of the slider, without repetitions.
function slidesOf(m) {
  const found = Array.from({ length: SLIDES + 1 }, (_, k) => Math.round(m ** (k / SLIDES)));
  return found.filter((number, k) => k === 0 || number > found[k - 1]);
}

class Interface {
  constructor(model, scene, camera) {
    Object.assign(this, { model, scene, camera });
    this.state = readHash(location.hash, model, camera);
    this.under = -1;
    const canvas = scene.canvas;
    for (const row of document.querySelectorAll('.edges')) row.hidden = model.faces.length === 0;
    byId('point').max = model.lastId;
    this.slides = slidesOf(model.m);
    byId('features').max = this.slides.length - 1;
    for (const layer of LAYERS) this.radio(layer).disabled = !model.has(layer);
    this.bindControls();
    this.bindPointer(canvas);
    document.addEventListener('keydown', (event) => this.onKey(event));
    window.addEventListener('hashchange', () => this.set(readHash(location.hash, model, camera)));
    new ResizeObserver(() => this.resized()).observe(canvas);
    this.bindTheme();
    this.set({});
  }

  radio(layer) {
    return document.querySelector(`input[name="layer"][value="${layer}"]`);
  }

  bindControls() {
    byId('controls').addEventListener('submit', (event) => event.preventDefault());
    for (const layer of LAYERS) this.radio(layer).addEventListener('change', () => this.set({ layer }));
    for (const name of ['log', 'anchors', 'edges']) {
      byId(name).addEventListener('change', () => this.set({ [name]: byId(name).checked }));
    }
    byId('decades').addEventListener('input', () => this.set({ decades: Number(byId('decades').value) }));
    byId('features').addEventListener('input', () => this.set({ features: this.slides[Number(byId('features').value)] }));
    byId('point').addEventListener('change', () => this.goTo(byId('point').valueAsNumber));
    byId('previous').addEventListener('click', () => this.step(-1));
    byId('next').addEventListener('click', () => this.step(1));
    byId('reset').addEventListener('click', () => this.resetView());
    byId('help').addEventListener('click', () => byId('keys').showModal());
    byId('link').addEventListener('click', () => this.copyLink());
  }

  bindTheme() {
    const dark = window.matchMedia('(prefers-color-scheme: dark)');
    const apply = (isDark) => {
      document.documentElement.dataset.theme = isDark ? 'dark' : 'light';
      byId('theme').setAttribute('aria-pressed', String(isDark));
      const [, ...parts] = getComputedStyle(byId('stage')).backgroundColor.match(/(\d+),? (\d+),? (\d+)/) ?? [0, 128, 128, 128];
      this.scene.background = parts.map((part) => part / 255);
      this.scene.request();
    };
    apply(dark.matches);
    dark.addEventListener('change', () => apply(dark.matches));
    byId('theme').addEventListener('click', () => apply(document.documentElement.dataset.theme !== 'dark'));
  }

  // The slider position nearest to a number of features; a link may contain a number between two positions.
  slideOf(m) {
    const gap = (place) => Math.abs(this.slides[place] - m);
    return this.slides.reduce((best, _, place) => (gap(place) < gap(best) ? place : best), 0);
  }

  get decades() {
    return Math.min(this.state.decades, this.model.decades(this.state.layer));
  }

  // Change the state and update everything that depends on it.
  set(changes) {
    Object.assign(this.state, changes);
    const { model, scene, state } = this;
    this.field = model.field(state.layer, state.point, state.features);
    const both = state.layer === 'difference';
    this.scale = new Scale(this.largest(), both, state.log, this.decades);
    this.stops = both ? model.meta.diverging : model.meta.sequential;
    scene.setColours(rampOf(this.stops));
    scene.setPlaces(this.scale.positions(this.field));
    const usesAnchor = state.layer !== 'kernel';
    scene.marks = { anchors: state.anchors, edges: state.edges, x: state.point, anchor: usesAnchor ? model.nearest[state.point] : -1 };
    scene.request();
    this.showControls();
    this.showBar();
    this.showHover();
    this.keepHash();
  }

  // The largest value of g and of the exact signature together, so that both have the same colours.
  largest() {
    const { model, state } = this;
    const top = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    if (!['feature', 'exact'].includes(state.layer) || !model.differences) return top(this.field);
    const other = state.layer === 'feature' ? 'exact' : 'feature';
    return Math.max(top(this.field), top(model.field(other, state.point, state.features)));
  }

  keepHash() {
    clearTimeout(this.timer); // browsers allow at most a hundred changes in half a minute
    this.timer = setTimeout(() => history.replaceState(null, '', this.hash), 250);
  }

  get hash() {
    return writeHash(this.state, this.model, this.camera);
  }

  showControls() {
    const { model, state } = this;
    this.radio(state.layer).checked = true;
    for (const name of ['log', 'anchors', 'edges']) byId(name).checked = state[name];
    byId('decades').max = model.decades(state.layer);
    byId('decades').value = this.decades;
    write('decades-text', `${this.decades} decade${this.decades > 1 ? 's' : ''}`);
    byId('decades-row').hidden = !state.log;
    write('decades-note', state.log ? `This layer resolves ${model.decades(state.layer)} decades; smaller values were rounded to zero.` : '');
    byId('features').value = this.slideOf(state.features);
    byId('features').disabled = state.layer !== 'kernel';
    byId('features').setAttribute('aria-valuetext', `${state.features} of ${model.m}`);
    write('features-text', `${state.features} of ${model.m}`);
    write('features-note', this.featuresNote());
    byId('point').value = model.ids[state.point];
    write('selected', this.selectedText());
  }

  featuresNote() {
    const { model, state } = this;
    if (state.layer !== 'kernel') return 'Only K(x, ·) is a sum of features.';
    if (state.features === model.m) return '';
    const raise = asText(model.raise(state.features), 3);
    return `The weights were fitted to all features. Those of the first ${state.features} are multiplied by ${raise}, so that their sum stays the same.`;
  }

  coordinates(index, positions) {
    const parts = this.model.place(index, positions).slice(0, this.model.meta.dimensions);
    return `(${parts.map((part) => asText(part, 3)).join(', ')})`;
  }

  selectedText() {
    const { model, state, field } = this;
    const names = { kernel: 'K(x, x)', feature: 'g(x, ω)', exact: 'exact, at x', difference: 'g − exact, at x' };
    const lines = [`${names[state.layer]} = ${asText(field[state.point], 4)}`, `x at ${this.coordinates(state.point)}`];
    if (state.layer !== 'kernel') {
      const anchor = model.nearest[state.point];
      lines.push(`ω at ${this.coordinates(anchor, model.anchors)}`);
      lines.push(`anchor ${anchor + 1} of ${model.m}, weight ${asText(model.weights[anchor], 3)}`);
    }
    return lines.join('\n');
  }

  showBar() {
    const { state, scale, model } = this;
    write('bar-name', NAMES[state.layer]);
    write('bar-unit', [model.meta.unit, state.log ? 'log' : ''].filter(Boolean).join(', '));
    const nothing = scale.both ? `below ${asText(model.meta.noDifference)} of g everywhere` : 'zero everywhere';
    write('bar-most', scale.empty ? nothing : `largest ${scale.both ? '±' : ''}${asText(scale.largest)}`);
    byId('gradient').style.background = gradientOf(this.stops);
    this.showTicks();
    const range = `from ${asText(scale.both ? -scale.largest : 0)} to ${asText(scale.largest)}`;
    const log = state.log ? `, logarithmic over ${this.decades} decades` : '';
    byId('gradient').setAttribute('aria-label', `Colours ${range}${log}`);
  }

  // Show the ticks whose texts have room: zero first, then from the ends of the bar inwards.
  showTicks() {
    const wide = byId('gradient').clientWidth;
    const zero = this.scale.position(0);
    const ticks = this.scale.ticks(Math.max(3, Math.floor(wide / 80)));
    const spans = ticks.map(({ text }) => Object.assign(document.createElement('span'), { textContent: text }));
    byId('ticks').replaceChildren(...spans);
    const rank = ({ at }) => (at === zero ? Infinity : Math.abs(at - zero));
    const taken = [];
    for (const [tick, span] of ticks.map((tick, k) => [tick, spans[k]]).sort((a, b) => rank(b[0]) - rank(a[0]))) {
      const [place, width] = [tick.at * wide, span.offsetWidth];
      const left = Math.max(-BESIDE, Math.min(wide + BESIDE - width, place - width / 2));
      span.style.left = `${left.toFixed(1)}px`;
      span.style.setProperty('--mark', `${(place - left).toFixed(1)}px`);
      if (taken.some(([low, high]) => left < high + APART && left + width > low - APART)) span.remove();
      else taken.push([left, left + width]);
    }
  }

  // The value under the cursor.
  showHover() {
    const box = byId('hover');
    box.hidden = this.under < 0;
    if (this.under < 0) return;
    const value = document.createElement('b');
    value.textContent = `${NAMES[this.state.layer]} = ${asText(this.field[this.under], 4)}`;
    const where = document.createElement('span');
    where.textContent = `y: point ${this.model.ids[this.under]} at ${this.coordinates(this.under)}`;
    box.replaceChildren(value, where);
    const [wide, high] = [box.parentElement.clientWidth, box.parentElement.clientHeight];
    const left = this.at[0] + 18 + box.offsetWidth > wide ? this.at[0] - 18 - box.offsetWidth : this.at[0] + 18;
    const top = Math.min(high - box.offsetHeight - 8, Math.max(8, this.at[1] - box.offsetHeight / 2));
    box.style.transform = `translate(${Math.max(8, left)}px, ${top}px)`;
  }

  hoverAt(x, y) {
    this.at = [x, y];
    if (this.hoverFrame) return;
    this.hoverFrame = requestAnimationFrame(() => {
      this.hoverFrame = 0;
      this.under = this.at ? pick(this.scene, ...this.at) : -1;
      this.showHover();
    });
  }

  noHover() {
    this.at = null;
    this.under = -1;
    this.showHover();
  }

  choose(x, y) {
    const found = pick(this.scene, x, y);
    if (found >= 0) this.set({ point: found });
  }

  goTo(id) {
    const known = this.model.indexOfId.get(id);
    if (known !== undefined) return this.set({ point: known });
    // If points were dropped, not every number exists: take the nearest.
    let best = 0;
    const gap = (index) => Math.abs(this.model.ids[index] - id);
    for (let i = 1; i < this.model.n; i++) if (gap(i) < gap(best)) best = i;
    return this.set({ point: Number.isFinite(id) ? best : this.state.point });
  }

  step(by) {
    this.set({ point: (this.state.point + by + this.model.n) % this.model.n });
  }

  moved() {
    this.scene.request();
    this.keepHash();
  }

  resetView() {
    this.camera.reset();
    this.moved();
  }

  resized() {
    this.scene.request();
    this.showBar();
  }

  async copyLink() {
    history.replaceState(null, '', this.hash);
    let said = 'Copied';
    try {
      await navigator.clipboard.writeText(location.href);
    } catch {
      said = 'See the address bar'; // if the page may not write to the clipboard
    }
    byId('link').textContent = said;
    byId('said').textContent = said;
    setTimeout(() => { byId('link').textContent = 'Copy link'; byId('said').textContent = ''; }, 1600);
  }
}
