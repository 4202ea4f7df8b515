/** Names of the files that an increment of a source was made of, as its origin has them. */

/** The names; an increment of many files knows the first ones, and says how many more there are. */
export function fileNamesOf(origin: Readonly<Record<string, unknown>>): string[] {
  const files = origin["files"];
  if (!Array.isArray(files)) return [];
  const names = files.map(String);
  const count = origin["file_count"];
  return typeof count === "number" && count > names.length ? [...names, `${count - names.length} more`] : names;
}
