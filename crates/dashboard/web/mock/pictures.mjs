// Pictures of the mock program: moving scenes in every format.

const axis = (label, unit, from, to) => ({ label, unit, from, to });
const NONE = axis("", "", 0, 0);

// A small generator, so that speckle is the same in every run.
let seed = 12345;
function random() {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
  return seed / 2 ** 32;
}

const gauss = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());

/** Speckle of scatterers: an envelope whose logarithm is drawn. */
const SPECKLE = Float32Array.from({ length: 256 * 512 }, () => Math.hypot(gauss(), gauss()));

function speckle(x, y) {
  return SPECKLE[((y & 511) << 8) | (x & 255)];
}

/** Brightness of an amplitude over 60 dB. */
function decibels(amplitude) {
  return Math.max(0, Math.min(255, 255 * (1 + (20 * Math.log10(amplitude + 1e-6)) / 60)));
}

/** Reflectivity of tissue with a vessel whose wall moves, in mm. */
function tissue(x, z, time) {
  const radius = 5.5 + 0.7 * Math.sin(2 * Math.PI * 1.1 * time);
  const distance = Math.hypot(x - 2, z - 24);
  if (distance < radius) return 0.008;
  if (distance < radius + 0.8) return 1.6;
  if (Math.abs(z - 8 - 0.5 * Math.sin(x / 4)) < 0.35) return 1.1;
  if (z > 38 + 0.8 * Math.sin(x / 3 + 0.4 * Math.sin(time))) return 0.35;
  return 0.13;
}

function bmode(time) {
  const [width, height] = [192, 320];
  const payload = Buffer.alloc(width * height);
  for (let row = 0; row < height; row++) {
    const z = (45 * row) / (height - 1);
    const attenuation = 10 ** (-0.008 * z);
    for (let column = 0; column < width; column++) {
      const x = -19 + (38 * column) / (width - 1);
      payload[row * width + column] = decibels(0.5 * tissue(x, z, time) * speckle(column, row) * attenuation);
    }
  }
  return {
    format: "gray8",
    width,
    height,
    x: axis("lateral", "mm", -19, 19),
    y: axis("depth", "mm", 0, 45),
    value: axis("echo", "dB", -60, 0),
    payload,
  };
}

function mmode(time) {
  const [width, height] = [4, 320];
  const payload = Buffer.alloc(width * height);
  for (let column = 0; column < width; column++) {
    const at = time + column * 0.0125;
    for (let row = 0; row < height; row++) {
      payload[row * width + column] = decibels(
        0.5 * tissue(2, (45 * row) / (height - 1), at) * speckle(Math.floor(at * 80), row),
      );
    }
  }
  return {
    format: "gray8",
    append: true,
    width,
    height,
    x: axis("time", "s", time, time + (width - 1) * 0.0125),
    y: axis("depth", "mm", 0, 45),
    value: axis("echo", "dB", -60, 0),
    payload,
  };
}

function waterfall(time) {
  const [width, height] = [2, 256];
  const payload = Buffer.alloc(width * height);
  const tone = 90 + 60 * Math.sin(time / 3);
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      const level =
        0.02 * Math.abs(gauss()) + Math.exp(-(((row - tone) / 3) ** 2)) + 0.3 * Math.exp(-(((row - 200) / 2) ** 2));
      payload[row * width + column] = decibels(level);
    }
  }
  return {
    format: "gray8",
    append: true,
    width,
    height,
    x: axis("shot", "", Math.round(time * 400), Math.round(time * 400) + 1),
    y: axis("frequency", "MHz", 20, 0),
    value: axis("power", "dBFS", -60, 0),
    payload,
  };
}

function lines(count, width, value, rest) {
  const values = new Float32Array(count * width);
  for (let line = 0; line < count; line++) {
    for (let index = 0; index < width; index++) values[line * width + index] = value(line, index);
  }
  return { format: "lines", width, height: count, value: NONE, payload: Buffer.from(values.buffer), ...rest };
}

function spectrum(time) {
  const level = (line, index) => {
    const tone = 120 + 60 * line + 20 * Math.sin(time);
    return 10 * Math.log10(1e-9 * (0.3 + random()) + 10 ** (-2 - line) * Math.exp(-(((index - tone) / 5) ** 2)));
  };
  return lines(2, 512, level, {
    x: axis("frequency", "MHz", 0, 20),
    y: axis("power", "dBFS", -110, 0),
    lines: ["channel 0", "channel 1"],
  });
}

function rf(time) {
  const echo = (line, index) => {
    const z = (45 * index) / 1023;
    return (
      8000 * tissue(2 + line * 6, z, time) * Math.sin(index * 0.9) * speckle(line * 7, index >> 2) * 0.5 + 40 * gauss()
    );
  };
  return lines(4, 1024, echo, {
    x: axis("time", "µs", 0, 58.4),
    y: axis("amplitude", "LSB", 0, 0),
    lines: [0, 1, 2, 3].map((n) => `channel ${32 * n}`),
  });
}

function iq(time) {
  const angle = (index) => (Math.PI / 2) * Math.floor(4 * speckle(index, 3)) + 0.2 * Math.sin(time) + Math.PI / 4;
  const sample = (line, index) => (line ? Math.sin(angle(index)) : Math.cos(angle(index))) * 9000 + 700 * gauss();
  return lines(2, 2000, sample, {
    x: axis("sample", "", 0, 1999),
    y: axis("amplitude", "LSB", -16384, 16384),
    lines: ["I", "Q"],
  });
}

function flow(time) {
  const [width, height] = [192, 240];
  const payload = Buffer.alloc(3 * width * height);
  const gray = bmode(time).payload;
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      const at = row * width + column;
      const x = -19 + (38 * column) / (width - 1);
      const radius = Math.hypot(x - 2, (45 * row) / 319 - 24) / 5.2;
      const speed = radius < 1 ? (1 - radius ** 2) * Math.sin(2 * Math.PI * 1.1 * time) : 0;
      const level = gray[at];
      payload[3 * at] = radius < 1 ? 40 + 215 * Math.max(0, speed) : level;
      payload[3 * at + 1] = radius < 1 ? 30 + 120 * Math.abs(speed) ** 2 : level;
      payload[3 * at + 2] = radius < 1 ? 40 + 215 * Math.max(0, -speed) : level;
    }
  }
  return {
    format: "rgb8",
    width,
    height,
    x: axis("lateral", "mm", -19, 19),
    y: axis("depth", "mm", 0, 33.75),
    value: NONE,
    payload,
  };
}

/** Kinds: label, description, pictures a second, and the function that makes one. */
export const KINDS = {
  bmode: ["B-mode", "Image of the envelope along all lines", 20, bmode],
  mmode: ["M-mode", "The middle line over time", 20, mmode],
  rf: ["Channels", "Samples of some channels", 10, rf],
  spectrum: ["Spectrum", "Power over frequency of two channels", 10, spectrum],
  waterfall: ["Waterfall", "Spectra of the last shots", 15, waterfall],
  iq: ["I/Q", "Samples of the demodulated signal", 10, iq],
  flow: ["Flow", "Colour Doppler over the B-mode", 10, flow],
};

/** Returns a picture as a message. */
export function encode(kind, sequence, shot, time) {
  const { payload, ...rest } = KINDS[kind][3](time);
  const note = kind === "flow" ? "link 1: 3 packets of this shot are missing" : "";
  const header = { kind, sequence, shot, unix_ms: Date.now(), append: false, lines: [], note, ...rest };
  let json = Buffer.from(JSON.stringify(header));
  json = Buffer.concat([json, Buffer.alloc((4 - (json.length % 4)) % 4, " ")]);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(json.length);
  return Buffer.concat([length, json, payload]);
}
