/** Points of pictures as images. */

import type { Picture } from "../logic/picture.ts";
import type { ColumnRing } from "../logic/ring.ts";

/** An image that is written at the size of a picture, and drawn at the size of the page. */
export class Raster {
  private readonly canvas = document.createElement("canvas");
  private image: ImageData | null = null;

  /** Returns the pixels, one 32-bit word each, of an image of this size. */
  private pixels(width: number, height: number): Uint32Array | null {
    if (this.image?.width !== width || this.image.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.image = this.canvas.getContext("2d")?.createImageData(width, height) ?? null;
    }
    return this.image ? new Uint32Array(this.image.data.buffer) : null;
  }

  private finish(): HTMLCanvasElement {
    if (this.image) this.canvas.getContext("2d")?.putImageData(this.image, 0, 0);
    return this.canvas;
  }

  /** Draws `gray8` through a table of 256 colours. */
  gray(picture: Picture, table: Uint8Array): HTMLCanvasElement {
    const { width, height } = picture.header;
    const colors = new Uint32Array(table.buffer);
    const pixels = this.pixels(width, height);
    const { bytes } = picture;
    for (let index = 0; pixels && index < pixels.length; index++) pixels[index] = colors[bytes[index] ?? 0] ?? 0;
    return this.finish();
  }

  /** Draws `rgb8`. */
  rgb({ header, bytes }: Picture): HTMLCanvasElement {
    const pixels = this.pixels(header.width, header.height);
    const color = new Uint8Array([0, 0, 0, 255]);
    const word = new Uint32Array(color.buffer);
    for (let index = 0; pixels && index < pixels.length; index++) {
      color.set(bytes.subarray(3 * index, 3 * index + 3));
      pixels[index] = word[0] ?? 0;
    }
    return this.finish();
  }

  /** Draws the columns of a scrolling picture, the newest at the right edge. Columns without data are transparent. */
  scroll(columns: ColumnRing, table: Uint8Array, gap: Uint32Array): HTMLCanvasElement {
    const { capacity, height, length } = columns;
    const colors = new Uint32Array(table.buffer);
    const pixels = this.pixels(capacity, height);
    if (!pixels) return this.canvas;
    if (length < capacity) pixels.fill(0);
    for (let index = 0; index < length; index++) {
      const points = columns.column(index);
      const isGap = columns.isGap(index);
      let at = capacity - length + index;
      for (let row = 0; row < height; row++, at += capacity) {
        pixels[at] = (isGap ? gap[(row >> 2) & 1] : colors[points[row] ?? 0]) ?? 0;
      }
    }
    return this.finish();
  }
}
