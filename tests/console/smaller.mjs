// Makes a screenshot smaller: the colours that are used most, and the nearest of them for all others.
import { deflateSync, inflateSync } from 'node:zlib';

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
const COLOURS_MAX = 48;

const crcTable = [...Array(256).keys()].map((n) => {
  let c = n;
  for (let bit = 0; bit < 8; bit += 1) c = c & 1 ? 0xedb88320 ^ (c >>> 1) : c >>> 1;
  return c >>> 0;
});
const crc = (bytes) => {
  let c = 0xffffffff;
  for (const byte of bytes) c = crcTable[(c ^ byte) & 255] ^ (c >>> 8);
  return (c ^ 0xffffffff) >>> 0;
};
const chunk = (type, data) => {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data]);
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  sum.writeUInt32BE(crc(body));
  return Buffer.concat([length, body, sum]);
};

const paeth = (a, b, c) => {
  const p = a + b - c;
  const [x, y, z] = [Math.abs(p - a), Math.abs(p - b), Math.abs(p - c)];
  return x <= y && x <= z ? a : y <= z ? b : c;
};

// The pixels of a PNG of 8 bits a channel without interlacing, as browsers write it.
const decode = (png) => {
  let [at, width, height, channels] = [8, 0, 0, 3];
  const parts = [];
  while (at < png.length) {
    const length = png.readUInt32BE(at);
    const type = png.toString('latin1', at + 4, at + 8);
    const data = png.subarray(at + 8, at + 8 + length);
    if (type === 'IHDR') [width, height, channels] = [data.readUInt32BE(0), data.readUInt32BE(4), data[9] === 6 ? 4 : 3];
    if (type === 'IDAT') parts.push(data);
    at += length + 12;
  }
  const raw = inflateSync(Buffer.concat(parts));
  const row = width * channels;
  const out = Buffer.alloc(row * height);
  for (let y = 0; y < height; y += 1) {
    const filter = raw[y * (row + 1)];
    for (let x = 0; x < row; x += 1) {
      const left = x >= channels ? out[y * row + x - channels] : 0;
      const up = y > 0 ? out[(y - 1) * row + x] : 0;
      const corner = x >= channels && y > 0 ? out[(y - 1) * row + x - channels] : 0;
      const guess = [0, left, up, (left + up) >> 1, paeth(left, up, corner)][filter];
      out[y * row + x] = raw[y * (row + 1) + 1 + x] + guess;
    }
  }
  return { width, height, channels, out };
};

export const smaller = (png) => {
  const { width, height, channels, out } = decode(png);
  const counts = new Map();
  const colourAt = (n) => (out[n * channels] << 16) | (out[n * channels + 1] << 8) | out[n * channels + 2];
  for (let n = 0; n < width * height; n += 1) counts.set(colourAt(n), (counts.get(colourAt(n)) ?? 0) + 1);
  // Seldom colours are steps between others. Of colours that are much alike, one is enough.
  const far = (a, b) => Math.abs((a >> 16) - (b >> 16)) + Math.abs(((a >> 8) & 255) - ((b >> 8) & 255)) + Math.abs((a & 255) - (b & 255));
  const palette = [];
  for (const [colour] of [...counts].sort((a, b) => b[1] - a[1])) {
    if (palette.length < COLOURS_MAX && palette.every((one) => far(one, colour) > 12)) palette.push(colour);
  }
  const nearest = new Map();
  for (const colour of counts.keys()) nearest.set(colour, palette.reduce((best, one, n) => (far(one, colour) < far(palette[best], colour) ? n : best), 0));
  const rows = Buffer.alloc((width + 1) * height);
  for (let n = 0; n < width * height; n += 1) rows[n + Math.floor(n / width) + 1] = nearest.get(colourAt(n));
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 3, 0, 0, 0], 8);
  const colours = Buffer.from(palette.flatMap((colour) => [colour >> 16, (colour >> 8) & 255, colour & 255]));
  return Buffer.concat([SIGNATURE, chunk('IHDR', head), chunk('PLTE', colours), chunk('IDAT', deflateSync(rows, { level: 9, memLevel: 9 })), chunk('IEND', Buffer.alloc(0))]);
};
