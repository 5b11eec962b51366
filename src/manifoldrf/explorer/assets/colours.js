// Colours and ticks for numbers, and numbers as text.

const SUPERSCRIPTS = { '-': '⁻', 0: '⁰', 1: '¹', 2: '²', 3: '³', 4: '⁴', 5: '⁵', 6: '⁶', 7: '⁷', 8: '⁸', 9: '⁹' };

function asText(value, digits = 3) {
  if (value === 0) return '0';
  if (!Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e5) return String(Number(value.toPrecision(digits))).replace('-', '−');
  const [mantissa, exponent] = value.toExponential(digits - 1).split('e');
  const power = '10' + [...exponent.replace('+', '')].map((c) => SUPERSCRIPTS[c]).join('');
  const factor = String(Number(mantissa)).replace('-', '−');
  if (factor === '1') return power;
  return factor === '−1' ? '−' + power : `${factor}·${power}`;
}

// Red, green, blue and alpha of 256 colours, interpolated between stops.
function rampOf(stops) {
  const ramp = new Uint8Array(4 * 256);
  for (let i = 0; i < 256; i++) {
    const place = (i / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    for (let c = 0; c < 3; c++) {
      ramp[4 * i + c] = Math.round(255 * (stops[low][c] + (place - low) * (stops[low + 1][c] - stops[low][c])));
    }
    ramp[4 * i + 3] = 255;
  }
  return ramp;
}

function gradientOf(stops) {
  const colours = stops.map((stop) => `rgb(${stop.map((part) => Math.round(255 * part)).join(' ')})`);
  return `linear-gradient(to right, ${colours.join(', ')})`;
}

// Map values of [low, high] to [0, 1], linearly or by logarithms of their sizes; -1 where there is no value. If `both`,
// the range is symmetric with zero in the middle, otherwise it has one sign.
class Scale {
  constructor(low, high, both, log, decades) {
    this.largest = Math.max(Math.abs(low), Math.abs(high)) || 1;
    this.empty = low === 0 && high === 0;
    [this.low, this.high] = both ? [-this.largest, this.largest] : [low, high];
    Object.assign(this, { both, log, decades });
    // Significant digits that tell values of a narrow range apart.
    this.digits = Math.min(12, 3 + Math.max(0, Math.floor(Math.log10(this.largest / (this.high - this.low || 1)))));
  }

  position(value) {
    if (Number.isNaN(value)) return -1;
    const clip = (share) => Math.min(1, Math.max(0, share));
    if (!this.log && !this.both && !this.empty) return this.high > this.low ? clip((value - this.low) / (this.high - this.low)) : 0.5;
    const share = Math.abs(value) / this.largest;
    const size = clip(!this.log ? share : share > 0 ? 1 + Math.log10(share) / this.decades : 0);
    if (this.both) return 0.5 + 0.5 * (value < 0 ? -size : size);
    return this.low < 0 ? 1 - size : size;
  }

  positions(values) {
    return Float32Array.from(values, (value) => this.position(value));
  }

  ticks(most) {
    if (this.empty) return [{ at: this.position(0), text: '0' }];
    const values = this.log ? this.powers(this.both ? most / 2 : most) : this.evenly(most);
    const ticks = values.map((value) => ({ at: this.position(value), text: asText(value, this.log ? 3 : this.digits) }));
    if (this.log) {
      const end = asText(this.largest / 10 ** this.decades, 2);
      ticks.push({ at: this.position(0), text: this.both ? '0' : this.low < 0 ? `≥ −${end}` : `≤ ${end}` });
    }
    return ticks.sort((a, b) => a.at - b.at);
  }

  // Round numbers of the range; its only value if there is one.
  evenly(most) {
    const rough = (this.high - this.low) / Math.max(2, most);
    if (!(rough > 0)) return [this.low];
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * [1, 2, 2.5, 5, 10].find((factor) => factor * unit >= rough);
    const [first, last] = [Math.ceil(this.low / step - 1e-9), Math.floor(this.high / step + 1e-9)];
    return Array.from({ length: last - first + 1 }, (_, k) => Number(((first + k) * step).toPrecision(12)));
  }

  powers(most) {
    const high = Math.floor(Math.log10(this.largest) + 1e-9);
    const low = Math.ceil(Math.log10(this.largest) - this.decades + 0.35); // the last one would be too close to the end of the bar
    const stride = Math.max(1, Math.ceil((high - low + 1) / Math.max(2, most)));
    const powers = [];
    for (let power = high; power >= low; power -= stride) powers.push(Number(`1e${power}`));
    return [...(this.high > 0 ? powers : []), ...(this.low < 0 ? powers.map((power) => -power) : [])];
  }
}
