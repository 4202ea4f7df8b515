/** Say which sources have a path, as the service reads it. Pure. */
export function seedsOf(paths: Readonly<Record<string, string>>): string[] {
  return Object.entries(paths).flatMap(([source, path]) => (path.trim() === "" ? [] : [`${source}=${path.trim()}`]));
}
