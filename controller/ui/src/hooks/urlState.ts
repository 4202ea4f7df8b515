import { useCallback } from "react";
import { useSearchParams } from "react-router";

/**
 * Keep one value of the view in the address, so that a reload and a link show the same.
 *
 *     const [tab, setTab] = useUrlState("tab", "overview");
 *
 * A value that equals the default is left out. A change replaces the entry in the history of the
 * browser, unless `push` is set (a page of a list, a chosen record).
 */
export function useUrlState(
  name: string,
  byDefault = "",
  { push = false }: { push?: boolean } = {},
): [string, (value: string) => void] {
  const [parameters, setParameters] = useSearchParams();
  const value = parameters.get(name) ?? byDefault;
  const setValue = useCallback(
    (next: string) =>
      setParameters((before) => withParameter(before, name, next === byDefault ? "" : next), {
        replace: !push,
      }),
    [byDefault, name, push, setParameters],
  );
  return [value, setValue];
}

/** Like `useUrlState` for several names at once; a name that is not given stays. */
export function useUrlStates<Names extends string>(
  defaults: Record<Names, string>,
): [Record<Names, string>, (changes: Partial<Record<Names, string>>) => void] {
  const [parameters, setParameters] = useSearchParams();
  const names = Object.keys(defaults) as Names[];
  const values = Object.fromEntries(
    names.map((name) => [name, parameters.get(name) ?? defaults[name]]),
  ) as Record<Names, string>;
  const setValues = (changes: Partial<Record<Names, string>>) =>
    setParameters(
      (before) =>
        names.reduce((all, name) => {
          const next = changes[name];
          return next === undefined ? all : withParameter(all, name, next === defaults[name] ? "" : next);
        }, before),
      { replace: true },
    );
  return [values, setValues];
}

/** Return parameters with one of them set; an empty value removes it. */
export function withParameter(before: URLSearchParams, name: string, value: string): URLSearchParams {
  const after = new URLSearchParams(before);
  if (value === "") after.delete(name);
  else after.set(name, value);
  return after;
}
