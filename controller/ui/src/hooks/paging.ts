import { useNavigate, useSearchParams } from "react-router";

import { withParameter } from "@/hooks/urlState";

interface Paging {
  /** Cursor of the page that is shown; undefined: the first. */
  cursor: string | undefined;
  first: (() => void) | undefined;
  back: (() => void) | undefined;
  /** What goes to the next page, given its cursor; undefined at the end. */
  next: (cursor: string | null | undefined) => (() => void) | undefined;
}

/**
 * Keep the page of a list in the address; the browser's Back button goes to the page before.
 *
 *     const paging = usePaging();
 *     const runs = useApi(["runs", paging.cursor], () => client.GET(..., { cursor: paging.cursor }));
 *     <Pager shown="100 runs" first={paging.first} back={paging.back}
 *            next={paging.next(runs.data?.cursor)} />
 */
export function usePaging(name = "cursor"): Paging {
  const [parameters, setParameters] = useSearchParams();
  const navigate = useNavigate();
  const cursor = parameters.get(name) ?? undefined;
  const go = (to: string) => setParameters((before) => withParameter(before, name, to));
  return {
    cursor,
    first: cursor === undefined ? undefined : () => go(""),
    back: cursor === undefined ? undefined : () => void navigate(-1),
    next: (to) => (to === null || to === undefined ? undefined : () => go(to)),
  };
}
