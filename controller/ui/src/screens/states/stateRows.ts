import type { components } from "@/api/schema";

type Declared = components["schemas"]["StateOut"];
type Size = components["schemas"]["StateSizeOut"];

export interface StateRow {
  stage: string;
  name: string;
  /** What the translator declares; undefined while the dataflow is not known. */
  declared: Declared | undefined;
  /** undefined: not known. */
  size: Size | undefined;
}

interface Stage {
  name: string;
  states: readonly Declared[];
}

/** Return a row for each state of a page of sizes; without sizes, one for each declared state. Pure. */
export function stateRows(stages: readonly Stage[], sizes: readonly Size[] | undefined): StateRow[] {
  const all = stages.flatMap((stage) =>
    stage.states.map((declared): StateRow => ({ stage: stage.name, name: declared.name, declared, size: undefined })),
  );
  if (sizes === undefined) return all;
  const byName = new Map(all.map((row) => [`${row.stage}.${row.name}`, row.declared]));
  return sizes.map((size) => ({
    stage: size.stage,
    name: size.state,
    declared: byName.get(`${size.stage}.${size.state}`),
    size,
  }));
}

/** Return what kind of state it is, in words. Pure. */
export function kindInWords({ kind, keeps }: Pick<Declared, "kind" | "keeps">): string {
  return keeps ? `${kind}, keeps records` : kind;
}

/** Return the columns of the key: those of the group, then those of a record within it. Pure. */
export function keyInWords({ key, second_key }: Pick<Declared, "key" | "second_key">): string {
  return [key, second_key].filter((part) => part !== "").join(", ");
}
