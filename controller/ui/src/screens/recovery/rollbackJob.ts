import { client } from "@/api/client";
import { ProblemError } from "@/api/problem";
import type { components, operations } from "@/api/schema";

export type RollbackJob = components["schemas"]["RollbackJobOut"];

type Query = operations["rollbacks_roll_back"]["parameters"]["query"];

const LOOK_MILLISECONDS = 500;

/**
 * Roll a dataflow back, and return once that is done.
 *
 * @param show is given the job at each look.
 * @throws ProblemError if the service refuses, or the job fails.
 */
export async function rollBack(dataflow: string, query: Query, show: (job: RollbackJob) => void) {
  const path = { name: dataflow };
  let answer: { data?: RollbackJob; error?: unknown; response: Response } = await client.POST(
    "/api/v1/dataflows/{name}/rollback",
    { params: { path, query } },
  );
  while (answer.data !== undefined && !answer.data.ended) {
    show(answer.data);
    await new Promise((resolve) => setTimeout(resolve, LOOK_MILLISECONDS));
    answer = await client.GET("/api/v1/dataflows/{name}/rollback/jobs/{job}", {
      params: { path: { ...path, job: answer.data.id } },
    });
  }
  if (answer.data?.error) throw new ProblemError(answer.data.error);
  return answer;
}

/** Say what a roll-back does now, and how far it is. Pure. */
export function stepInWords({ step, done, total, unit }: RollbackJob): string {
  return total > 0 ? `${step} (${done} of ${total} ${unit})` : step;
}
