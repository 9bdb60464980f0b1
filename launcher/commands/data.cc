// lockstep data
#include "launcher/commands/data.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "launcher/commands/commands.h"
#include "runtime/base/cpus.h"
#include "runtime/data/format.h"
#include "runtime/data/target_warnings.h"

namespace lockstep {

std::optional<ImageStores> open_images_at(const std::string& path, bool skip_bad) {
  auto source = image_source_at(path);
  if (!source) return std::nullopt;
  DataConfig config;
  config.source = std::move(*source);
  if (skip_bad) {
    config.bad_records = BadRecords::kSkip;
    config.max_bad_fraction = 1;
  }
  const ModelTraits model{.input = ModelInput::kImages};
  OpenedSource opened = format_of(config)->open(model, /*seed=*/0, /*need_train=*/true);
  add_target_warnings(config, model, &opened);
  return std::move(std::get<ImageStores>(opened));
}

int choose_data_threads(int threads) { return threads > 0 ? threads : usable_cpus(); }

void for_each_in_threads(int64_t begin,
                         int64_t end,
                         int threads,
                         const std::function<void(int64_t)>& body) {
  std::atomic<int64_t> next{begin};
  std::mutex mutex;
  std::exception_ptr first;
  const auto work = [&] {
    for (int64_t i = next++; i < end; i = next++) {
      try {
        body(i);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (first == nullptr) first = std::current_exception();
        next = end;
      }
    }
  };
  std::vector<std::thread> others;
  try {
    for (int64_t i = 1; i < std::min<int64_t>(threads, end - begin); ++i) others.emplace_back(work);
  } catch (const std::system_error&) {  // no more threads can be started: these do all the work
  }
  work();
  for (std::thread& thread : others) thread.join();
  if (first != nullptr) std::rethrow_exception(first);
}

CommandSpec data_command() {
  return {.name = "data",
          .help = "Pack, inspect and time images; convert text to tokens",
          .subcommands = {data_pack_command(),
                          data_inspect_command(),
                          data_bench_command(),
                          data_tokenize_command()}};
}

}  // namespace lockstep
