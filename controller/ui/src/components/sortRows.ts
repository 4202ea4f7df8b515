export type SortValue = number | string | null | undefined;

/** Return rows in order; what has no value comes last in either direction. Equal ones stay. */
export function sortRows<Row>(
  rows: readonly Row[],
  value: (row: Row) => SortValue,
  descending: boolean,
): Row[] {
  const sign = descending ? -1 : 1;
  return [...rows].sort((left, right) => {
    const [a, b] = [value(left), value(right)];
    if (a === null || a === undefined) return b === null || b === undefined ? 0 : 1;
    if (b === null || b === undefined) return -1;
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  });
}

/** Return the column and the direction of "name" or "-name". */
export function parseSort(order: string): { id: string; descending: boolean } {
  return order.startsWith("-")
    ? { id: order.slice(1), descending: true }
    : { id: order, descending: false };
}

/** Return the order after a click on a column: rising, then falling. */
export function toggleSort(order: string, id: string): string {
  return order === id ? `-${id}` : id;
}
