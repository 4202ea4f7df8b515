import { ProblemError } from "@/api/problem";
import type { components } from "@/api/schema";

/** What every job shows of itself. */
export type Job = Omit<components["schemas"]["RollbackJobOut"], "rollback">;

interface Answer<J> {
  data?: J;
  error?: unknown;
  response: Response;
}

const LOOK_MILLISECONDS = 500;

/**
 * Begin a job, and return once it has ended.
 *
 * @param begin asks for it.
 * @param look asks how far it is, by its id.
 * @param show is given the job at each look.
 * @throws ProblemError if the service refuses, or the job fails.
 */
export async function followJob<J extends Job>(
  begin: () => Promise<Answer<J>>,
  look: (job: string) => Promise<Answer<J>>,
  show: (job: J) => void,
): Promise<Answer<J>> {
  let answer = await begin();
  while (answer.data !== undefined && !answer.data.ended) {
    show(answer.data);
    await new Promise((resolve) => setTimeout(resolve, LOOK_MILLISECONDS));
    answer = await look(answer.data.id);
  }
  if (answer.data?.error) throw new ProblemError(answer.data.error);
  return answer;
}

/** Say what a job does now, and how far it is. Pure. */
export function stepInWords({ step, done, total, unit }: Pick<Job, "step" | "done" | "total" | "unit">): string {
  return total > 0 ? `${step} (${done} of ${total} ${unit})` : step;
}
