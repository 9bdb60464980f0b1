#include "launcher/forecast/predicted_step.h"

#include <fmt/core.h>

#include <algorithm>

#include "runtime/cuda/plan/roofline.h"

namespace lockstep::launcher {
namespace {

constexpr size_t kPrintedProducts = 8;

std::string extents_of(const cuda::PredictedProduct& product) {
  return fmt::format("{} x {} x {}{}",
                     product.m,
                     product.n,
                     product.k,
                     product.groups > 1 ? fmt::format(", {} groups", product.groups) : "");
}

Json to_json(const cuda::PredictedProduct& product, int lanes) {
  Json json;
  json["name"] = product.name;
  json["m"] = product.m;
  json["n"] = product.n;
  json["k"] = product.k;
  json["groups"] = product.groups;
  json["convolution"] = product.convolution;
  json["count_per_step_per_rank"] = product.count * lanes;
  json["seconds"] = product.seconds;
  return json;
}

// What the GPU multiplies in.
std::string products_of(const run::PreparedRun& prepared) {
  if (prepared.plan.layout.compute == DType::kF32 && prepared.config.execution.tf32) return "TF32";
  return lockstep::name_of(prepared.config.execution.precision);
}

}  // namespace

void predict_step(const run::PreparedRun& prepared, const cuda::GpuModel& model, Json& json) {
  const plan::Plan& plan = prepared.plan;
  const bool tf32 = prepared.config.execution.tf32;
  const int lanes = plan.sharding.shares().most();
  const cuda::Roofline lane = cuda::predict_graph(prepared.graphs->training, model, tf32);
  const double seconds = lane.seconds * lanes;
  const double peak = peak_flops(model, plan.layout.compute, tf32);
  const double samples =
      static_cast<double>(prepared.config.train.global_batch) / plan.sharding.lanes * lanes;
  const double share = prepared.flops_per_sample * samples / (seconds * peak);
  double products = 0;
  for (const cuda::PredictedProduct& product : lane.products) products += product.total_seconds();

  fmt::print(
      "\npredicted for {} by its peak rates ({:g} TFLOP/s in {}, {:g} GB/s), not measured:\n"
      "  a step of one rank takes at least {:.4g} ms, which is {:.3g}% MFU at most\n"
      "  not counted: exchange, sums of lanes, the update, and data\n"
      "  {:<44}{:>10}{:>12}\n",
      model.name,
      peak / 1e12,
      products_of(prepared),
      model.gbytes_per_s,
      seconds * 1e3,
      share * 100,
      "products and convolutions (m x n x k)",
      "a step",
      "ms together");
  for (size_t i = 0; i < std::min(kPrintedProducts, lane.products.size()); ++i) {
    const cuda::PredictedProduct& product = lane.products[i];
    fmt::print("    {:<42}{:>10}{:>12.4g}\n",
               extents_of(product),
               product.count * lanes,
               product.total_seconds() * lanes * 1e3);
  }
  if (lane.products.size() > kPrintedProducts)
    fmt::print("    and {} other sizes\n", lane.products.size() - kPrintedProducts);
  fmt::print("  {:<54}{:>12.4g}\n  {:<54}{:>12.4g}\n",
             "all products and convolutions",
             products * lanes * 1e3,
             "all other ops",
             (lane.seconds - products) * lanes * 1e3);

  json["predicted_gpu"] = model.name;
  json["predicted_step_seconds"] = seconds;
  json["predicted_mfu"] = share;
  json["predicted_product_seconds"] = products * lanes;
  json["predicted_products"] = Json::array();
  for (const cuda::PredictedProduct& product : lane.products)
    json["predicted_products"].push_back(to_json(product, lanes));
}

}  // namespace lockstep::launcher
