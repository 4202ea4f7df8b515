import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { Loading } from "@/components/Loading";
import { ProblemMessage } from "@/components/ProblemMessage";

/** What the service answered; until then room for it, and its refusal if it refuses. */
export function Asked<T>({
  query,
  rows = 3,
  children,
}: {
  query: UseQueryResult<T>;
  rows?: number;
  children: (answer: T) => ReactNode;
}) {
  return (
    <>
      {query.isError && <ProblemMessage error={query.error} retry={() => void query.refetch()} />}
      {query.isPending && <Loading rows={rows} />}
      {query.data !== undefined && children(query.data)}
    </>
  );
}
