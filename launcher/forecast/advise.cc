#include "launcher/forecast/advise.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "launcher/forecast/forecast_text.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::launcher {
namespace {

using run::Setting;

// Ranks on nodes: the request with another number of them, and the run prepared for it.
struct Layout {
  PlanRequest request;
  PlanPlace place;
  run::PreparedRun prepared;
};

// A setting that has been planned.
struct Tried {
  const Layout* layout;
  Advice advice;

  // Settings with fewer changes are simpler; one that keeps the bits is simpler than any other.
  std::pair<bool, size_t> changes() const {
    return {!advice.setting.same_bits,
            advice.setting.set.size() + (advice.other_ranks ? size_t{1} : size_t{0})};
  }
};

// Times and memory that differ by less are no reason for a change.
constexpr double kSame = 0.01;
// Forecasts do not tell times apart that differ by less.
constexpr double kAsFast = 0.05;

// Whether `a` is as good as `b` in all respects.
bool is_as_good(const Advice& a, const Advice& b) {
  return a.fits >= b.fits && a.step_s.middle() <= b.step_s.middle() * (1 + kSame) &&
         a.needed_bytes <= b.needed_bytes * (1 + kSame);
}

// Leaves out settings that are no better than simpler ones.
std::vector<Tried> without_idle_changes(std::vector<Tried> all) {
  std::vector<Tried> kept;
  std::ranges::stable_sort(all, {}, &Tried::changes);
  for (Tried& tried : all) {
    const bool idle = std::ranges::any_of(
        kept, [&](const Tried& simpler) { return is_as_good(simpler.advice, tried.advice); });
    if (!idle) kept.push_back(std::move(tried));
  }
  return kept;
}

double time_of(const Tried& tried) { return tried.advice.step_s.middle(); }
double memory_of(const Tried& tried) { return tried.advice.needed_bytes; }

// The order of the answer. Of those that are as fast as the fastest one, the simplest comes first.
void sort_by_time(std::vector<Tried>& all) {
  std::ranges::stable_sort(all, [](const Tried& a, const Tried& b) {
    if (a.advice.fits != b.advice.fits) return a.advice.fits;
    return a.advice.fits ? time_of(a) < time_of(b) : memory_of(a) < memory_of(b);
  });
  if (all.empty() || !all[0].advice.fits) return;
  const double fast = time_of(all[0]) * (1 + kAsFast);
  const auto slower = std::ranges::find_if(
      all, [&](const Tried& tried) { return !tried.advice.fits || time_of(tried) > fast; });
  std::ranges::stable_sort(all.begin(), slower, {}, &Tried::changes);
}

// Leaves out types in which the hardware computes no faster.
std::vector<Setting> faster_precisions(std::vector<Setting> precisions, const Hardware& hardware) {
  const auto measured = [&](const char* type) {
    return std::ranges::any_of(hardware.ops, [&](const MeasuredOp& op) { return op.type == type; });
  };
  const double fp32 = hardware.fp32_tflops;
  std::erase_if(precisions, [&](const Setting& precision) {
    const std::string& set = precision.set[0];
    if (set == "execution.precision=BF16") return hardware.bf16_tflops <= fp32 && !measured("BF16");
    if (set == "execution.bf16x3=true")
      return hardware.bf16_tflops <= 6 * fp32 && !measured("BF16X3");
    if (set == "execution.tf32=true") return hardware.tf32_tflops <= fp32;
    return false;
  });
  return precisions;
}

class Search {
 public:
  Search(const PlanRequest& request, const std::vector<std::string>& set) : set_(set) {
    auto own = std::make_unique<Layout>();
    own->request = request;
    find_place(own->request, own->place);
    own->prepared = plan_run(own->request, own->place, set_).prepared;
    layouts_.push_back(std::move(own));
  }

  // The settings that many others depend on, in all combinations.
  void combine() {
    const Layout& layout = *layouts_[0];
    const run::SettingChoices choices = run::setting_choices(layout.prepared);
    std::vector<Setting> lanes = choices.fewer_lanes;
    lanes.insert(lanes.end(), choices.more_lanes.begin(), choices.more_lanes.end());
    std::vector<Setting> all(1);
    for (const std::vector<Setting>& values :
         {lanes,
          choices.zero_stages,
          choices.recomputations,
          choices.loss_rows,
          faster_precisions(choices.precisions, layout.place.hardware.hardware)}) {
      const size_t count = all.size();
      for (size_t i = 0; i < count; ++i)
        for (const Setting& value : values) all.push_back(run::combined(all[i], value));
    }
    for (const Setting& setting : all) attempt(layout, layout.prepared, Setting(), setting);
  }

  // What each of the best gains from one more change.
  void refine() {
    add_layouts();
    for_the_best([&](const Tried& tried, const run::PreparedRun&) {
      for (size_t i = 1; i < layouts_.size(); ++i)
        attempt(*layouts_[i], layouts_[i]->prepared, Setting(), tried.advice.setting);
    });
    if (layouts_.size() > 1) try_each(&run::SettingChoices::zero_stages);
    try_each(&run::SettingChoices::moments);
    try_each(&run::SettingChoices::wire_types);
    try_each(&run::SettingChoices::buckets);
  }

  size_t planned() const { return planned_; }

  std::vector<Advice> result() const {
    std::vector<Tried> best = without_idle_changes(tried_);
    sort_by_time(best);
    std::vector<Advice> advice;
    for (Tried& tried : best) {
      advice.push_back(std::move(tried.advice));
      std::vector<std::string>& set = advice.back().setting.set;
      set.insert(set.begin(), set_.begin(), set_.end());
    }
    return advice;
  }

 private:
  // Plans `from`, which `prepared` has, with `more`.
  void attempt(const Layout& layout,
               const run::PreparedRun& prepared,
               const Setting& from,
               const Setting& more) {
    try {
      const PlannedRun planned =
          plan_prepared(run::with_setting(prepared, more), layout.request, layout.place);
      ++planned_;
      const forecast::Forecast& forecast = *planned.forecast;
      tried_.push_back({&layout,
                        {.setting = run::combined(from, more),
                         .ranks = layout.request.ranks,
                         .ranks_per_node = layout.place.ranks_per_node,
                         .other_ranks = &layout != layouts_[0].get(),
                         .step_s = forecast.step.step,
                         .needed_bytes = planned.needed_bytes,
                         .fits = planned.fits(),
                         .run_s = forecast.run.total_s,
                         .usd = forecast.run.usd,
                         .kwh = forecast.run.kwh}});
    } catch (const ConfigError&) {
      // The config has something that this setting does not go with.
    }
  }

  // Other numbers of ranks on the same nodes. A rank has a GPU, so only CPUs have a choice.
  void add_layouts() {
    const Layout& own = *layouts_[0];
    const Hardware& hardware = own.place.hardware.hardware;
    const int per_node = own.place.ranks_per_node;
    if (hardware.kind == Hardware::Kind::kGpu) {
      const int full = std::min(own.request.ranks, static_cast<int>(hardware.devices));
      if (per_node < full) add_layout(own.request.ranks, full);
      return;
    }
    if (own.request.ranks % per_node != 0) return;
    const int nodes = own.request.ranks / per_node;
    // What ranks lose that reach over several processors is not predicted.
    constexpr int kMostOfProcessor = 8;
    const auto sockets = static_cast<int>(hardware.cpu.sockets);
    for (int times = 1; times <= kMostOfProcessor; times *= 2)
      if (sockets * times != per_node && sockets * times <= hardware.cpu.cores)
        add_layout(nodes * sockets * times, sockets * times);
  }

  void add_layout(int ranks, int per_node) {
    const Layout& own = *layouts_[0];
    auto other = std::make_unique<Layout>();
    other->request = own.request;
    other->request.ranks = ranks;
    other->request.ranks_per_node = per_node;
    find_place(other->request, other->place);
    other->prepared = own.prepared;
    other->prepared.placed = placed_ranks(other->request, other->place);
    layouts_.push_back(std::move(other));
  }

  // The best with each choice of one more field.
  void try_each(std::vector<Setting> run::SettingChoices::*field) {
    for_the_best([&](const Tried& tried, const run::PreparedRun& prepared) {
      const Setting& from = tried.advice.setting;
      const run::SettingChoices choices = run::setting_choices(prepared);
      for (const Setting& choice : choices.*field) {
        const std::string name = choice.set[0].substr(0, choice.set[0].find('=') + 1);
        const bool chosen = std::ranges::any_of(
            from.set, [&](const std::string& set) { return set.starts_with(name); });
        if (!chosen) attempt(*tried.layout, prepared, from, choice);
      }
    });
  }

  // Calls `work` for the fastest that fit, and for those that need least memory.
  template <typename Work>
  void for_the_best(const Work& work) {
    constexpr size_t kBest = 5;  // of each kind
    std::vector<Tried> best = without_idle_changes(tried_);
    sort_by_time(best);
    const size_t fastest = std::min(kBest, best.size());
    std::ranges::stable_sort(
        best.begin() + static_cast<ptrdiff_t>(fastest), best.end(), {}, memory_of);
    best.resize(std::min(best.size(), fastest + kBest));
    for (const Tried& tried : best) {
      const run::PreparedRun prepared =
          run::with_setting(tried.layout->prepared, tried.advice.setting);
      work(tried, prepared);
    }
  }

  const std::vector<std::string> set_;            // beside the request
  std::vector<std::unique_ptr<Layout>> layouts_;  // the request's own first
  std::vector<Tried> tried_;
  size_t planned_ = 0;
};

// Whether LoRA could be enough: the run trains all weights of a network that exists already.
bool may_use_lora(const run::PreparedRun& prepared) {
  return !prepared.config.train.init_from.empty() && !prepared.config.adapter.lora;
}

std::string settings_text(const Advice& advice) {
  std::string text;
  if (advice.other_ranks)
    text = fmt::format("--ranks {} --ranks-per-node {}", advice.ranks, advice.ranks_per_node);
  if (!advice.setting.set.empty()) append_item(text, run::set_options(advice.setting), " ");
  return text.empty() ? "the config as it is" : text;
}

void print_row(const Advice& advice) {
  fmt::print("  {:<18}  {:>9.3g} GiB  {}\n",
             forecast::seconds_text(advice.step_s),
             advice.needed_bytes / 0x1p30,
             settings_text(advice));
  std::string notes = advice.setting.same_bits ? "the same bits" : "other bits";
  if (!advice.setting.gives_up.empty()) notes += "; " + advice.setting.gives_up;
  if (advice.usd) notes += "; the run $" + forecast::text_of(*advice.usd);
  if (advice.kwh) notes += "; " + forecast::text_of(*advice.kwh) + " kWh";
  fmt::print("{:35}({})\n", "", notes);
}

Json to_json(const forecast::Range& range) {
  return Json::array({Json(range.low), Json(range.high)});
}

Json to_json(const Advice& advice) {
  Json json = Json::object({{"set", advice.setting.set},
                            {"ranks", advice.ranks},
                            {"ranks_per_node", advice.ranks_per_node},
                            {"predicted_step_seconds", to_json(advice.step_s)},
                            {"predicted_run_seconds", to_json(advice.run_s)},
                            {"memory_bytes", advice.needed_bytes},
                            {"fits", advice.fits},
                            {"same_bits", advice.setting.same_bits},
                            {"gives_up", advice.setting.gives_up}});
  if (advice.usd) json["predicted_usd"] = to_json(*advice.usd);
  if (advice.kwh) json["predicted_kwh"] = to_json(*advice.kwh);
  return json;
}

double cost_of(const Advice& advice) { return advice.usd ? advice.usd->middle() : 0; }

constexpr size_t kPrinted = 3;

// The first ones by a criterion.
template <typename Criterion>
std::vector<Advice> best_by(std::vector<Advice> all, Criterion criterion) {
  std::ranges::stable_sort(all, {}, criterion);
  all.resize(std::min(kPrinted, all.size()));
  return all;
}

std::vector<Advice> fitting(const std::vector<Advice>& all) {
  std::vector<Advice> fit;
  std::ranges::copy_if(all, std::back_inserter(fit), &Advice::fits);
  return fit;
}

}  // namespace

FoundAdvice find_advice(const PlanRequest& request, const PlanPlace& place) {
  FoundAdvice found;
  Search search(request, {});
  search.combine();
  search.refine();
  found.all = search.result();
  found.planned = search.planned();
  if (!may_use_lora(plan_run(request, place).prepared)) return found;
  try {
    Search with_lora(request, {"adapter.lora.rank=8"});
    with_lora.combine();
    found.with_lora = with_lora.result();
    found.planned += with_lora.planned();
  } catch (const ConfigError&) {
    // The network has no layers that LoRA is for.
  }
  return found;
}

void print_advice(const PlanRequest& request,
                  const PlanPlace& place,
                  const FoundAdvice& found,
                  Json& json) {
  const auto print = [&](const std::string& title, const char* key, const auto& rows) {
    fmt::print("{}:\n", title);
    for (const Advice& advice : rows) {
      print_row(advice);
      json["advice"][key].push_back(to_json(advice));
    }
  };
  fmt::print("predicted, not measured: the best of {} settings for {} x {}\n",
             found.planned,
             request.ranks,
             place.hardware.hardware.name);
  const std::vector<Advice> fit = fitting(found.all);
  if (fit.empty() && !found.all.empty()) {
    fmt::print("nothing fits into {:.3g} GiB; the least memory needs:\n",
               place.hardware.device_bytes > 0
                   ? static_cast<double>(place.hardware.device_bytes) / 0x1p30
                   : place.hardware.hardware.memory_gib);
    print_row(found.all.front());
  }
  if (!fit.empty()) {
    // They are in the order of their times.
    const std::vector<Advice> by_time(fit.begin(), fit.begin() + std::min(kPrinted, fit.size()));
    const std::vector<Advice> by_cost = best_by(fit, cost_of);
    const bool priced = by_time[0].usd.has_value();
    // Times that are taken as equal are no other order.
    const bool same_order = !priced || cost_of(by_time[0]) <= cost_of(by_cost[0]) * (1 + kAsFast);
    print(same_order ? "by time, and so by cost and energy" : "by time", "by_time", by_time);
    if (!same_order) print("by cost", "by_cost", by_cost);
    const auto keeps_bits = [](const Advice& advice) { return advice.setting.same_bits; };
    const auto same_bits = std::ranges::find_if(fit, keeps_bits);
    if (std::ranges::none_of(by_time, keeps_bits) && same_bits != fit.end())
      print("by time, with the same bits", "same_bits", std::vector<Advice>{*same_bits});
    print("by memory", "by_memory", best_by(fit, &Advice::needed_bytes));
  }
  const std::vector<Advice> lora = fitting(found.with_lora);
  if (lora.empty()) return;
  const std::vector<Advice> one_each = {lora[0], best_by(lora, &Advice::needed_bytes)[0]};
  print("if LoRA will do, which trains a small part of the weights, by time and by memory",
        "with_lora",
        one_each);
}

}  // namespace lockstep::launcher
