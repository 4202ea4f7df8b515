import { useDebouncedValue } from "@mantine/hooks";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { mistakesOf, type Mistake } from "@/screens/register/editing";

export type Validation = components["schemas"]["Validation"];
export type Change = components["schemas"]["ChangeOut"];
export type Fate = "keep" | "rebuild" | "retained";
/** Stage to what the author decided for it. */
export type Choice = Readonly<Record<string, Fate>>;

const PAUSE_MILLISECONDS = 400;
const YAML = { "Content-Type": "application/yaml" };

/** Return how a request sends a document: as the text that it is. */
export function asYaml(text: string) {
  return { headers: YAML, body: text as never, bodySerializer: (body: unknown) => body as string };
}

/** Return the parameters of a change for what the author decided. */
export function choiceQuery(choice: Choice): Record<Fate, string[]> {
  const of = (fate: Fate) => Object.keys(choice).filter((stage) => choice[stage] === fate);
  return { keep: of("keep"), rebuild: of("rebuild"), retained: of("retained") };
}

export interface Checked {
  /** Whether the service still has to judge what is in the editor. */
  pending: boolean;
  valid: Validation | undefined;
  mistakes: readonly Mistake[];
  /** A refusal that lists no mistakes, or no answer at all. */
  failure: unknown;
  /** The version that is registered under its name; undefined: none is. */
  registered: number | undefined;
  plan: Change | undefined;
}

/** Let the service judge a document while it is typed, and plan what registering it would change. */
export function useDocument(text: string, choice: Choice): Checked {
  const [settled] = useDebouncedValue(text, PAUSE_MILLISECONDS);
  const empty = settled.trim() === "";
  const check = useApi(
    ["document", settled],
    () => client.POST("/api/v1/dataflows/validate", asYaml(settled)),
    { enabled: !empty, follow: false },
  );
  const dataflows = useApi(["dataflows"], () => client.GET("/api/v1/dataflows"));
  const valid = empty ? undefined : check.data;
  const registered = dataflows.data?.items.find((one) => one.name === valid?.name)?.version;
  const plan = useApi(
    ["plan", settled, choice, registered],
    () =>
      client.PUT("/api/v1/dataflows/{name}", {
        params: {
          path: { name: valid?.name ?? "" },
          query: { ...choiceQuery(choice), dry_run: true },
        },
        ...asYaml(settled),
      }),
    { enabled: valid !== undefined && registered !== undefined, follow: false, keepPrevious: true },
  );
  const refused = plan.data?.refused ?? [];
  const wrong = check.error === null ? [] : mistakesOf(check.error.problem.details);
  return {
    pending: settled !== text || check.isFetching || dataflows.isPending || plan.isFetching,
    valid,
    mistakes: empty ? [] : valid === undefined ? wrong : refused,
    failure: wrong.length === 0 ? (check.error ?? plan.error ?? undefined) : undefined,
    registered,
    plan: registered === undefined ? undefined : plan.data,
  };
}
