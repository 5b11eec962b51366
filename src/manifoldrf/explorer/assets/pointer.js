// Mouse, touch and keyboard.

Object.assign(Interface.prototype, {
  bindPointer(canvas) {
    const fingers = new Map();
    const place = (event) => [event.offsetX, event.offsetY];
    const spread = () => {
      const [a, b] = [...fingers.values()];
      return { gap: Math.hypot(a[0] - b[0], a[1] - b[1]), middle: [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2] };
    };
    let slip = 0; // pixels moved since the pointer went down; with a second finger it is never a click

    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, place(event));
      slip = fingers.size > 1 ? Infinity : 0;
    });
    canvas.addEventListener('pointermove', (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return this.hoverAt(...place(event));
      const two = fingers.size === 2 ? spread() : null;
      const now = place(event);
      const [dx, dy] = [now[0] - before[0], now[1] - before[1]];
      fingers.set(event.pointerId, now);
      slip += Math.hypot(dx, dy);
      if (two) {
        const { gap, middle } = spread();
        this.camera.zoomBy(two.gap / Math.max(gap, 1));
        this.camera.shiftBy(middle[0] - two.middle[0], middle[1] - two.middle[1]);
      } else if (slip > DRAG) {
        canvas.classList.add('moving');
        this.noHover();
        if (event.shiftKey || event.buttons === 2) this.camera.shiftBy(dx, dy);
        else this.camera.rotate(TURN * dx, TURN * dy);
      }
      return this.moved();
    });
    const ended = (event) => {
      if (!fingers.delete(event.pointerId)) return;
      canvas.classList.remove('moving');
      if (event.type === 'pointerup' && slip <= DRAG && event.button === 0) {
        this.choose(...place(event));
        this.hoverAt(...place(event));
      }
    };
    canvas.addEventListener('pointerup', ended);
    canvas.addEventListener('pointercancel', ended);
    canvas.addEventListener('pointerleave', (event) => event.pointerType === 'touch' || this.noHover());
    canvas.addEventListener('contextmenu', (event) => event.preventDefault());
    canvas.addEventListener('dblclick', () => this.resetView());
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      const pixels = event.deltaY * (event.deltaMode === 1 ? 16 : 1);
      this.camera.zoomBy(Math.exp(0.0015 * Math.max(-300, Math.min(300, pixels))));
      this.hoverAt(...place(event));
      this.moved();
    }, { passive: false });
  },

  onKey(event) {
    const onCanvas = event.target === this.scene.canvas;
    const elsewhere = !onCanvas && event.target !== document.body; // in other controls keys have another meaning
    if (elsewhere || byId('keys').open || event.ctrlKey || event.metaKey || event.altKey) return;
    if ((onCanvas && this.moveByKey(event)) || this.chooseByKey(event.key)) event.preventDefault();
  },

  moveByKey(event) {
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const step = arrows[event.key];
    if (!step) return false;
    if (event.shiftKey) this.camera.shiftBy(20 * step[0], 20 * step[1]);
    else this.camera.rotate(0.12 * step[0], 0.12 * step[1]);
    this.moved();
    return true;
  },

  nextField() {
    const fields = [...this.model.own.keys()];
    this.set({ layer: fields[(fields.indexOf(this.state.layer) + 1) % fields.length] });
  },

  chooseByKey(key) {
    const toggle = (name) => () => this.set({ [name]: !this.state[name] });
    const zoom = (factor) => () => {
      this.camera.zoomBy(factor);
      this.moved();
    };
    const actions = {
      '+': zoom(0.87), '=': zoom(0.87), '-': zoom(1.15), '−': zoom(1.15),
      n: () => this.step(1), ']': () => this.step(1), p: () => this.step(-1), '[': () => this.step(-1),
      a: toggle('anchors'), l: toggle('log'), r: () => this.resetView(), '?': () => byId('keys').showModal(),
    };
    if (this.model.faces.length) actions.e = toggle('edges');
    if (this.model.own.size) actions.f = () => this.nextField();
    LAYERS.forEach((layer, k) => {
      actions[k + 1] = () => this.model.has(layer) && this.set({ layer });
    });
    const action = actions[key.toLowerCase()];
    if (action) action();
    return Boolean(action);
  },
});
