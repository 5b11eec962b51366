// The controls: what they say, and what they do.

const NAMES = {
  kernel: 'K(x, y)',
  feature: 'g(y, ω)',
  exact: 'exact(y, ω)',
  difference: 'g − exact',
};
const DRAG = 5; // pixels that a click may slip
const TURN = 0.0075; // radians for each pixel of a drag
const SLIDES = 200; // steps of the slider of features, which is logarithmic

const byId = (id) => document.getElementById(id);

class Interface {
  constructor(model, scene, camera) {
    Object.assign(this, { model, scene, camera });
    this.state = readHash(location.hash, model, camera);
    this.under = -1;
    const canvas = scene.canvas;
    byId('edges-row').hidden = model.faces.length === 0;
    byId('point').max = Math.max(...model.ids);
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
    byId('features').addEventListener('input', () => this.set({ features: this.slid(Number(byId('features').value)) }));
    byId('point').addEventListener('change', () => this.goTo(Number(byId('point').value)));
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
      byId('theme').textContent = isDark ? 'Light' : 'Dark';
      byId('theme').setAttribute('aria-pressed', String(isDark));
      const [, ...parts] = getComputedStyle(byId('stage')).backgroundColor.match(/(\d+),? (\d+),? (\d+)/) ?? [0, 128, 128, 128];
      this.scene.background = parts.map((part) => part / 255);
      this.scene.request();
    };
    apply(dark.matches);
    dark.addEventListener('change', () => apply(dark.matches));
    byId('theme').addEventListener('click', () => apply(document.documentElement.dataset.theme !== 'dark'));
  }

  // Number of features at a place of the slider, and back.
  slid(place) {
    return Math.max(1, Math.round(this.model.m ** (place / SLIDES)));
  }

  slideOf(m) {
    return this.model.m > 1 ? Math.round((SLIDES * Math.log(m)) / Math.log(this.model.m)) : SLIDES;
  }

  // Change what is shown; everything follows from the state.
  set(changes) {
    Object.assign(this.state, changes);
    const { model, scene, state } = this;
    this.field = model.field(state.layer, state.point, state.features);
    const both = state.layer === 'difference';
    this.scale = new Scale(this.largest(), both, state.log, state.decades);
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

  // Of g and of the exact signature together, so that both have the same colours.
  largest() {
    const { model, state } = this;
    const top = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    if (!['feature', 'exact'].includes(state.layer) || !model.differences) return top(this.field);
    const other = state.layer === 'feature' ? 'exact' : 'feature';
    return Math.max(top(this.field), top(model.field(other, state.point, state.features)));
  }

  keepHash() {
    clearTimeout(this.timer); // browsers refuse more than a hundred changes in half a minute
    this.timer = setTimeout(() => history.replaceState(null, '', this.hash), 250);
  }

  get hash() {
    return writeHash(this.state, this.model, this.camera);
  }

  showControls() {
    const { model, state } = this;
    this.radio(state.layer).checked = true;
    for (const name of ['log', 'anchors', 'edges']) byId(name).checked = state[name];
    byId('decades').value = state.decades;
    byId('decades-text').textContent = `${state.decades} decade${state.decades > 1 ? 's' : ''}`;
    byId('decades-row').hidden = !state.log;
    byId('features').value = this.slideOf(state.features);
    byId('features').disabled = state.layer !== 'kernel';
    byId('features').setAttribute('aria-valuetext', `${state.features} of ${model.m}`);
    byId('features-text').textContent = `${state.features} of ${model.m}`;
    byId('features-note').textContent = this.featuresNote();
    byId('point').value = model.ids[state.point];
    byId('selected').textContent = this.selectedText();
  }

  featuresNote() {
    const { model, state } = this;
    if (state.layer !== 'kernel') return 'Only K(x, ·) is a sum of features.';
    if (state.features === model.m) return '';
    const raise = asText(model.raise(state.features), 3);
    return `Weights were fitted to all features. Here those of the first ${state.features} are multiplied by ${raise}, so that their sum is the same.`;
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
    byId('bar-name').textContent = NAMES[state.layer];
    byId('bar-unit').textContent = [
      model.meta.perVolume ? 'per unit of volume' : 'of the graph',
      state.log ? 'log' : '',
    ].filter(Boolean).join(', ');
    const nothing = scale.both ? `below ${asText(model.meta.noDifference)} of g everywhere` : 'zero everywhere';
    byId('bar-most').textContent = scale.empty ? nothing : `largest ${scale.both ? '±' : ''}${asText(scale.largest)}`;
    byId('gradient').style.background = gradientOf(this.stops);
    const ticks = scale.ticks(Math.max(3, Math.floor(byId('gradient').clientWidth / 80)));
    byId('ticks').replaceChildren(...ticks.map(({ at, text }) => {
      const tick = document.createElement('span');
      tick.style.left = `${(100 * at).toFixed(2)}%`;
      tick.textContent = text;
      tick.classList.toggle('first', at === 0 && text.length > 3); // its text would leave the bar
      return tick;
    }));
    const range = `from ${asText(scale.both ? -scale.largest : 0)} to ${asText(scale.largest)}`;
    byId('gradient').setAttribute('aria-label', `Colours ${range}`);
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
    // Not every number is drawn where points were left out: the nearest number is.
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
      said = 'In the address bar'; // where a page may not write to the clipboard
    }
    byId('link').textContent = said;
    setTimeout(() => { byId('link').textContent = 'Copy link'; }, 1600);
  }
}
