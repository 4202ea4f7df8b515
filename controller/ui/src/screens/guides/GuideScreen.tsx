import { Stack } from "@mantine/core";
import { useParams } from "react-router";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import { Asked } from "@/components/Asked";
import { Page } from "@/components/Page";
import { GuideBlock } from "@/screens/guides/GuideBlock";

/** One guide. Its blocks come apart from the service: nothing here reads Markdown or HTML. */
export default function GuideScreen() {
  const { guide = "" } = useParams();
  const shown = useApi(
    ["guides", guide],
    () => client.GET("/api/v1/guides/{guide}", { params: { path: { guide } } }),
    { follow: false },
  );
  return (
    <Page
      title={shown.data?.title ?? guide}
      trail={[{ to: "/guides", label: "Guides" }]}
      cli={["cbp", "help", guide]}
    >
      <Asked query={shown} rows={8}>
        {({ blocks }) => (
          <Stack gap="md">
            {blocks.slice(1).map((block, at) => (
              <GuideBlock key={`${guide} ${at}`} block={block} />
            ))}
          </Stack>
        )}
      </Asked>
    </Page>
  );
}
