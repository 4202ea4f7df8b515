import { notifications } from "@mantine/notifications";
import {
  keepPreviousData,
  useMutation,
  useQuery,
  useQueryClient,
  type QueryKey,
  type UseMutationResult,
  type UseQueryResult,
} from "@tanstack/react-query";

import { bodyOf } from "@/api/client";
import { POLL_MILLISECONDS, REFETCH_MILLISECONDS, useLive, type LiveState } from "@/api/live";
import { problemOf, type ProblemError } from "@/api/problem";

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

interface ApiOptions<T> {
  /** Do not ask while false. */
  enabled?: boolean;
  /** Follow the service while the page is live; false: ask once. */
  follow?: boolean;
  /**
   * How often to ask about what no event reports, in milliseconds, not below 2,000; given the last
   * answer. undefined: as usual.
   */
  every?: (answer: T | undefined) => number | undefined;
  /** Show the answer of the previous key (the last page of a list) until the next one is there. */
  keepPrevious?: boolean;
}

/**
 * Ask the service, and ask again while the page is live.
 *
 *     const dataflows = useApi(["dataflows"], () => client.GET("/api/v1/dataflows"));
 *
 * Begin the key with the resource ("dataflows", "runs", ...) and the dataflow's name, so that a
 * change is announced to all who show it.
 */
export function useApi<T>(
  key: QueryKey,
  request: () => Promise<Answer<T>>,
  options: ApiOptions<T> = {},
): UseQueryResult<T, ProblemError> {
  const { live, state } = useLive();
  const { enabled = true, follow = true, keepPrevious = false, every } = options;
  return useQuery<T, ProblemError>({
    queryKey: key,
    queryFn: () => bodyOf(request()),
    enabled,
    refetchInterval: ({ state: { data } }) =>
      follow && live ? (every?.(data) ?? everyOf(state)) : false,
    refetchOnWindowFocus: follow && live,
    ...(keepPrevious ? { placeholderData: keepPreviousData } : {}),
  });
}

function everyOf(state: LiveState): number {
  return state === "live" ? REFETCH_MILLISECONDS : POLL_MILLISECONDS;
}

interface ActionOptions<T, Arguments> {
  /** What the notification says when it worked. */
  done?: string | ((answer: T, given: Arguments) => string);
  /** First parts of the keys to ask again for; by default everything that is shown. */
  changes?: readonly QueryKey[];
  onDone?: (answer: T, given: Arguments) => void;
  /** Whether a refusal is shown as a notification; false: the screen shows `error` itself. */
  notify?: boolean;
}

/**
 * Change something, say so, and show what it changed.
 *
 *     const pause = useAction((name: string) =>
 *       client.POST("/api/v1/dataflows/{name}/pause", { params: { path: { name } } }),
 *       { done: "Paused" });
 *     <Button loading={pause.isPending} onClick={() => pause.mutate("clicks")}>Pause</Button>
 */
export function useAction<T, Arguments = void>(
  request: (given: Arguments) => Promise<Answer<T>>,
  options: ActionOptions<T, Arguments> = {},
): UseMutationResult<T, ProblemError, Arguments> {
  const queries = useQueryClient();
  const { done, changes, onDone, notify = true } = options;
  return useMutation<T, ProblemError, Arguments>({
    mutationFn: (given) => bodyOf(request(given)),
    onSuccess: async (answer, given) => {
      if (done !== undefined) {
        const message = typeof done === "string" ? done : done(answer, given);
        notifications.show({ message, color: "teal" });
      }
      onDone?.(answer, given);
      if (changes === undefined) await queries.invalidateQueries();
      else await Promise.all(changes.map((queryKey) => queries.invalidateQueries({ queryKey })));
    },
    onError: (error) => {
      // What is shown led to a request that does not fit it any more.
      if (problemOf(error).status === 409) void queries.invalidateQueries();
      if (!notify) return;
      const problem = problemOf(error);
      notifications.show({
        title: `${problem.title} (${problem.error_code})`,
        message: problem.message,
        color: "red",
        autoClose: false,
      });
    },
  });
}
