// The model: arrays from the page, and the fields computed from them. Layers "own0", "own1", ... are fields of the user.

const LAYERS = ['kernel', 'feature', 'exact', 'difference'];
const OWN_DECADES = 4; // of the logarithmic colours of fields of the user, which are not rounded
const TYPES = { float32: Float32Array, float64: Float64Array, int8: Int8Array, uint8: Uint8Array, uint32: Uint32Array };

async function readArrays(table, text) {
  const letters = atob(text.trim());
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  const buffer = await new Response(stream).arrayBuffer();
  const arrays = {};
  for (const { name, type, offset, length } of table) arrays[name] = new TYPES[type](buffer, offset, length);
  return arrays;
}

// Sparse columns whose entries are integers times one scale per column.
class Columns {
  constructor(arrays, name, signed) {
    const counts = arrays[name + 'Counts'];
    const [steps, parts] = ['Steps', 'Numbers'].map((part) => [0, 1, 2].map((k) => arrays[name + part + k] ?? []));
    this.scales = arrays[name + 'Scales'];
    this.starts = new Uint32Array(counts.length + 1);
    for (let l = 0; l < counts.length; l++) this.starts[l + 1] = this.starts[l] + counts[l];
    this.rows = new Uint32Array(parts[0].length);
    this.numbers = new Int32Array(parts[0].length);
    const joined = (planes, k) => planes[0][k] | (planes[1][k] << 8) | (planes[2][k] << 16); // missing ones are zero
    for (let l = 0; l < counts.length; l++) {
      for (let k = this.starts[l], row = -1; k < this.starts[l + 1]; k++) {
        row += joined(steps, k);
        this.rows[k] = row;
        const coded = joined(parts, k);
        this.numbers[k] = signed ? (coded >> 1) ^ -(coded & 1) : coded;
      }
    }
  }

  // result += factor times column l
  add(l, factor, result) {
    const scale = factor * this.scales[l];
    for (let k = this.starts[l]; k < this.starts[l + 1]; k++) result[this.rows[k]] += scale * this.numbers[k];
  }

  at(row, l) {
    let low = this.starts[l];
    let high = this.starts[l + 1] - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle] === row) return this.numbers[middle] * this.scales[l];
      if (this.rows[middle] < row) low = middle + 1;
      else high = middle - 1;
    }
    return 0;
  }
}

class Model {
  constructor(meta, arrays) {
    this.meta = meta;
    Object.assign(this, arrays);
    this.n = this.ids.length;
    this.m = this.weights.length;
    this.values = new Columns(arrays, 'field', false);
    this.differences = meta.nExact > 0 ? new Columns(arrays, 'difference', true) : null;
    this.own = new Map(meta.fields.map((facts, k) => [`own${k}`, { ...facts, values: arrays[`own${k}`] }]));
    this.layers = [...this.own.keys(), ...(this.m ? LAYERS : [])];
    this.indexOfId = new Map(Array.from(this.ids, (id, index) => [id, index]));
    this.totalWeight = meta.share * this.weights.reduce((sum, weight) => sum + weight, 0);
  }

  // Factor of the weights of the first m anchors that replaces the volume of the others.
  raise(m) {
    let sum = 0;
    for (let l = 0; l < m; l++) sum += this.weights[l];
    return sum > 0 ? this.totalWeight / sum : 1;
  }

  // Number of decades that the values of a layer resolve.
  decades(layer) {
    return this.meta.decades[layer] ?? OWN_DECADES;
  }

  get lastId() {
    return this.ids.reduce((most, id) => Math.max(most, id), 0); // spreading the ids into arguments would overflow the stack
  }

  has(layer) {
    if (layer === 'exact' || layer === 'difference') return this.differences !== null;
    return this.layers.includes(layer);
  }

  // K(x, .) = sum over the first m anchors of weight times g(x, anchor) times g(., anchor)
  kernel(x, m) {
    const result = new Float64Array(this.n);
    const raise = this.raise(m);
    for (let l = 0; l < m; l++) {
      const factor = raise * this.weights[l] * this.values.at(x, l);
      if (factor !== 0) this.values.add(l, factor, result);
    }
    return result;
  }

  field(layer, x, m) {
    if (this.own.has(layer)) return this.own.get(layer).values;
    if (layer === 'kernel') return this.kernel(x, m);
    const result = new Float64Array(this.n);
    const anchor = this.nearest[x];
    if (layer !== 'difference') this.values.add(anchor, 1, result);
    if (layer !== 'feature') this.differences.add(anchor, layer === 'exact' ? -1 : 1, result);
    return result;
  }

  place(index, positions = this.positions) {
    return Array.from(positions.subarray(3 * index, 3 * index + 3), (part, k) => part + this.meta.origin[k]);
  }
}
