// Catches: attention that takes packed samples for padded ones, whose documents would then see each
// other, or padded ones for packed ones, which are slow on a GPU; passes that differ.
#include <gtest/gtest.h>

#include "runtime/config/parse.h"
#include "runtime/cpu/device.h"
#include "runtime/data/format.h"
#include "runtime/graph/ops/attention.h"
#include "runtime/run/lanes.h"
#include "runtime/run/prepared_run.h"

namespace lockstep::run {
namespace {

RunConfig config_with(const std::string& data) {
  return config::parse_config(
      "model { gpt { layers: 1 heads: 2 width: 16 context: 8 vocabulary: 17 } } data { " + data +
          " } optimizer { adamw {} } execution { precision: FP32 length_buckets: [4] }"
          " train { steps: 1 global_batch: 8 }",
      "test",
      {});
}

// How many attention ops of the run's graphs have the attribute, and how many have not.
std::pair<int, int> count(const std::string& data) {
  static const std::unique_ptr<exec::Device> cpu = cpu::make_device();
  const PreparedRun run = prepare_run(choose_lanes(open_config(config_with(data))).opened,
                                      collectives::Topology{},
                                      RunPurpose::kTrain,
                                      cpu->ops(),
                                      {.may_assume_data = true});
  int with = 0, without = 0;
  const auto add = [&](const graph::Graph& graph) {
    for (const graph::Op& op : graph.ops)
      if (op.kind == graph::OpKind::kAttention || op.kind == graph::OpKind::kAttentionBackward)
        (op.as<graph::AttentionAttributes>().one_document ? with : without)++;
  };
  add(run.graphs->training);
  add(*run.graphs->evaluation);
  for (const graph::Graph& graph : run.graphs->length_bucket_training) add(graph);
  return {with, without};
}

std::string tokens(const std::string& packing) {
  return "tokens { train: 't.bin' train_documents: 'd.bin' eval: 't.bin' eval_documents: 'd.bin' "
         "packing: " +
         packing + " }";
}

// Both passes of training, in two lengths, and the evaluation.
TEST(OneDocument, IsKnownToEveryAttention) {
  EXPECT_EQ(count(tokens("PADDED")), std::pair(5, 0));
  EXPECT_EQ(count(tokens("BEST_FIT")), std::pair(0, 5));
}

TEST(OneDocument, IsUpToTheData) {
  const auto shares = [](const std::string& data) {
    const RunConfig config = config_with(data);
    return data::format_of(config.data)->shares_samples();
  };
  EXPECT_TRUE(shares("conversations { train: 'c.jsonl' }"));
  EXPECT_FALSE(shares("conversations { train: 'c.jsonl' padded: true }"));
  EXPECT_FALSE(shares("labelled_text { train: 'c.tsv' }"));
  EXPECT_FALSE(shares("tokens { train: 't.bin' }"));
}

}  // namespace
}  // namespace lockstep::run
