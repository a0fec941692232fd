// Columns of numbers as the service sends them (application/vnd.pai.columns): "PAIC", the length of the header, the
// header in JSON, and the columns, which begin on multiples of 8 bytes.
export type Numbers = Float32Array | Float64Array | Int32Array | Uint32Array | BigInt64Array;

export interface Column {
  name: string;
  tag?: string;
  values: Numbers;
}

export interface Columns {
  header: Record<string, unknown>;
  columns: Column[];
}

const TYPES = { f4: Float32Array, f8: Float64Array, i4: Int32Array, i8: BigInt64Array, u4: Uint32Array };

export function readColumns(content: ArrayBuffer): Columns {
  const view = new DataView(content);
  if (content.byteLength < 8 || view.getUint32(0) !== 0x50414943) throw new Error("These are no columns.");
  const length = view.getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(content, 8, length)));
  const columns = header.columns.map((column: { name: string; dtype: keyof typeof TYPES; offset: number; length: number }) => ({
    ...column,
    values: new TYPES[column.dtype](content, 8 + length + column.offset, column.length),
  }));
  return { header, columns };
}
