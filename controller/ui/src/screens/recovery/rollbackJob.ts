import { client } from "@/api/client";
import { followJob } from "@/api/jobs";
import type { components, operations } from "@/api/schema";

export type RollbackJob = components["schemas"]["RollbackJobOut"];

type Query = operations["rollbacks_roll_back"]["parameters"]["query"];

/** Roll a dataflow back, and return once that is done; see `followJob`. */
export function rollBack(dataflow: string, query: Query, show: (job: RollbackJob) => void) {
  const path = { name: dataflow };
  return followJob<RollbackJob>(
    () => client.POST("/api/v1/dataflows/{name}/rollback", { params: { path, query } }),
    (job) => client.GET("/api/v1/dataflows/{name}/rollback/jobs/{job}", { params: { path: { ...path, job } } }),
    show,
  );
}
