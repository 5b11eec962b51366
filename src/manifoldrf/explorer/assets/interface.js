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
    const needs = { edges: model.faces.length, model: model.m, own: model.own.size, several: model.own.size > 1, link: location.protocol !== 'about:' };
    for (const [name, met] of Object.entries(needs)) {
      for (const part of document.querySelectorAll(`.${name}`)) part.hidden = !met;
    }
    byId('point').max = model.lastId;
    this.slides = slidesOf(model.m);
    byId('features').max = this.slides.length - 1;
    for (const radio of this.radios) radio.disabled = !model.has(radio.value);
    this.bindControls();
    this.bindPointer(canvas);
    document.addEventListener('keydown', (event) => this.onKey(event));
    window.addEventListener('hashchange', () => this.set(readHash(location.hash, model, camera)));
    new ResizeObserver(() => this.resized()).observe(canvas);
    this.bindTheme();
    this.set({});
  }

  get radios() {
    return [...document.querySelectorAll('input[name="layer"]')];
  }

  // The field of the user that is shown, if it is one.
  get own() {
    return this.model.own.get(this.state.layer);
  }

  bindControls() {
    byId('controls').addEventListener('submit', (event) => event.preventDefault());
    for (const radio of this.radios) radio.addEventListener('change', () => this.set({ layer: radio.value }));
    for (const name of FLAGS) {
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
    byId('save').addEventListener('click', () => this.savePicture());
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
    const [low, high] = this.range();
    const both = state.layer === 'difference' || (low < 0 && high > 0);
    this.scale = new Scale(low, high, both, state.log, this.decades);
    this.stops = both ? model.meta.diverging : model.meta.sequential;
    scene.setColours(rampOf(this.stops));
    scene.setPlaces(this.scale.positions(this.field));
    const usesAnchor = state.layer !== 'kernel' && !this.own;
    scene.marks = { anchors: state.anchors, edges: state.edges, ring: state.ring, x: state.point, anchor: usesAnchor ? model.nearest[state.point] : -1 };
    scene.request();
    this.showControls();
    this.showBar();
    this.showHover();
    this.keepHash();
  }

  // The range of the colours. Fields of the user have their own, or that of all of them; g and the exact signature
  // have the same.
  range() {
    const { model, state, own } = this;
    const among = own && state.same ? [...model.own.values()] : [own];
    if (own) return [Math.min(...among.map((field) => field.low)), Math.max(...among.map((field) => field.high))];
    const top = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    let largest = top(this.field);
    if (['feature', 'exact'].includes(state.layer) && model.differences) {
      const other = state.layer === 'feature' ? 'exact' : 'feature';
      largest = Math.max(largest, top(model.field(other, state.point, state.features)));
    }
    return [state.layer === 'difference' ? -largest : 0, largest];
  }

  keepHash() {
    clearTimeout(this.timer); // browsers allow at most a hundred changes in half a minute
    this.timer = setTimeout(() => this.writeAddress(), 250);
  }

  writeAddress() {
    if (location.protocol !== 'about:') history.replaceState(null, '', this.hash); // a frame in a notebook has no address
  }

  get hash() {
    return writeHash(this.state, this.model, this.camera);
  }

  showControls() {
    const { model, state } = this;
    this.radios.find((radio) => radio.value === state.layer).checked = true;
    for (const name of FLAGS) byId(name).checked = state[name];
    byId('decades').max = model.decades(state.layer);
    byId('decades').value = this.decades;
    write('decades-text', `${this.decades} decade${this.decades > 1 ? 's' : ''}`);
    byId('decades-row').hidden = !state.log;
    write('decades-note', state.log && !this.own ? `This layer resolves ${model.decades(state.layer)} decades; smaller values were rounded to zero.` : '');
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
    const least = 1e-7 * this.camera.radius; // single precision
    return `(${parts.map((part) => asText(Math.abs(part) < least ? 0 : part, 3)).join(', ')})`;
  }

  get name() {
    return this.own?.name ?? NAMES[this.state.layer];
  }

  valueText(name, value) {
    return Number.isNaN(value) ? `${name}: no value` : `${name} = ${asText(value, this.scale.digits + 1)}`;
  }

  selectedText() {
    const { model, state, field } = this;
    const names = { kernel: 'K(x, x)', feature: 'g(x, ω)', exact: 'exact, at x', difference: 'g − exact, at x' };
    const name = this.own?.name ?? names[state.layer];
    const lines = [this.valueText(name, field[state.point]), `x at ${this.coordinates(state.point)}`];
    if (state.layer !== 'kernel' && !this.own) {
      const anchor = model.nearest[state.point];
      lines.push(`ω at ${this.coordinates(anchor, model.anchors)}`);
      lines.push(`anchor ${anchor + 1} of ${model.m}, weight ${asText(model.weights[anchor], 3)}`);
    }
    return lines.join('\n');
  }

  showBar() {
    const { state, scale, model } = this;
    const [least, most] = [scale.low, scale.high].map((value) => asText(value, scale.digits));
    write('bar-name', this.name);
    write('bar-unit', [this.own ? '' : model.meta.unit, state.log ? 'log' : ''].filter(Boolean).join(', '));
    let range = this.own ? this.ownRange() : `largest ${scale.both ? '±' : ''}${most}`;
    if (scale.empty) range = scale.both ? `below ${asText(model.meta.noDifference)} of g everywhere` : 'zero everywhere';
    write('bar-most', range);
    byId('gradient').style.background = gradientOf(this.stops);
    this.showTicks();
    const log = state.log ? `, logarithmic over ${this.decades} decades` : '';
    byId('gradient').setAttribute('aria-label', `Colours from ${least} to ${most}${log}`);
  }

  // What the values of a field of the user are, whatever the range of the colours is.
  ownRange() {
    const { own, scale } = this;
    const [low, high] = [own.low, own.high].map((value) => asText(value, scale.digits));
    const missing = own.values.some(Number.isNaN) ? ', grey: no value' : '';
    return (own.low === own.high ? `${low} everywhere` : `${low} to ${high}`) + missing;
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
    value.textContent = this.valueText(this.name, this.field[this.under]);
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
    this.writeAddress();
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

  // The picture with its colour bar as a PNG file, in pixels of the screen.
  savePicture() {
    const { scene } = this;
    const { canvas, ratio } = scene;
    scene.draw(); // WebGL forgets a picture after it was shown
    const shown = getComputedStyle(byId('stage'));
    const frame = canvas.getBoundingClientRect();
    const picture = Object.assign(document.createElement('canvas'), { width: canvas.width, height: canvas.height + Math.round(72 * ratio) });
    const pen = picture.getContext('2d');
    pen.fillStyle = shown.backgroundColor;
    pen.fillRect(0, 0, picture.width, picture.height);
    pen.drawImage(canvas, 0, 0);
    pen.scale(ratio, ratio);
    pen.translate(0, frame.height);
    const bar = byId('gradient').getBoundingClientRect();
    const left = bar.left - frame.left;
    const fill = pen.createLinearGradient(left, 0, left + bar.width, 0);
    this.stops.forEach((stop, k) => fill.addColorStop(k / (this.stops.length - 1), `rgb(${stop.map((part) => Math.round(255 * part)).join(' ')})`));
    pen.fillStyle = fill;
    pen.fillRect(left, 30, bar.width, 14);
    pen.fillStyle = shown.color;
    const print = (text, x, y, weight = '', align = 'left') => {
      pen.font = `${weight} 13px ${shown.fontFamily}`;
      pen.textAlign = align;
      pen.fillText(text, x, y);
    };
    print(this.name, left, 22, 'bold');
    print([byId('bar-unit').textContent, byId('bar-most').textContent].filter(Boolean).join('; '), left + bar.width, 22, '', 'right');
    for (const tick of document.querySelectorAll('#ticks span')) print(tick.textContent, tick.getBoundingClientRect().left - frame.left, 62);
    picture.toBlob((blob) => {
      const link = document.createElement('a');
      link.href = URL.createObjectURL(blob);
      link.download = `${document.title} ${this.name}`.replace(/[^\p{L}\p{N}]+/gu, '_').replace(/^_|_$/g, '').slice(0, 80) + '.png';
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    });
  }
}
