// Drives a fuzz target without libFuzzer: mutations of its seed inputs, the same ones in every run,
// for the given number of seconds. Arguments: SECONDS (default 3), or files to run once each. When
// the target dies, takes too long or more than 2 GiB, the input is in ./fuzz-crash.

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include <fstream>
#include <iterator>
#include <random>

#include "fuzz_target.h"

namespace {

using Engine = std::mt19937_64;

const std::string* current_input = nullptr;

// Saves the input; only calls what a signal handler may call.
void save_input(int signal_number) {
  const int file = ::open("fuzz-crash", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file >= 0 && current_input != nullptr) {
    const ssize_t wrote = ::write(file, current_input->data(), current_input->size());
    ::close(wrote >= 0 ? file : file);
  }
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

size_t below(Engine& engine, size_t bound) { return bound == 0 ? 0 : engine() % bound; }

void mutate(std::string& input, const std::vector<std::string>& seeds, Engine& engine) {
  const size_t at = below(engine, input.size());
  const size_t length = below(engine, std::min<size_t>(input.size() - at, 64)) + 1;
  switch (below(engine, 9)) {
    case 0:
      if (!input.empty()) input[at] = static_cast<char>(input[at] ^ (1 << below(engine, 8)));
      break;
    case 1:
      if (!input.empty()) input[at] = static_cast<char>(engine());
      break;
    case 2: input.resize(at); break;
    case 3: input.erase(at, length); break;
    case 4: input.insert(at, input.substr(at, length)); break;
    case 5: input.insert(at, 1, "\",\n\r\t. 0-?\xff"[below(engine, 12)]); break;
    case 6:
      for (size_t i = at; i < std::min(at + 4, input.size()); ++i)
        input[i] = static_cast<char>(below(engine, 2) ? 0xff : 0);
      break;
    case 7: {
      const std::string& other = seeds[below(engine, seeds.size())];
      const size_t from = below(engine, other.size());
      input.insert(at, other.substr(from, below(engine, 64)));
      break;
    }
    case 8: std::swap(input[at], input[below(engine, input.size())]); break;
  }
}

// What a hostile input makes a parser ask for beyond this fails, and ends the target.
void limit_memory() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which reserve terabytes
  const rlimit limit{rlim_t{2} << 30, rlim_t{2} << 30};
  ::setrlimit(RLIMIT_AS, &limit);
#endif
}

void run(const std::string& input) {
  constexpr unsigned kMaxSeconds = 20;
  current_input = &input;
  ::alarm(kMaxSeconds);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  ::alarm(0);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGABRT, save_input);
  std::signal(SIGSEGV, save_input);
  std::signal(SIGALRM, save_input);
  limit_memory();
  double seconds = 3;
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    if (!file) {
      seconds = std::atof(argv[i]);
      continue;
    }
    run(std::string(std::istreambuf_iterator<char>(file), {}));
    if (i + 1 == argc) return 0;
  }
  const std::vector<std::string> seeds = lockstep::fuzz::seed_inputs();
  for (const std::string& seed : seeds) run(seed);
  Engine engine(1);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int64_t runs = 0;
  while (std::chrono::steady_clock::now() < end) {
    std::string input = seeds[below(engine, seeds.size())];
    for (size_t count = 1 + below(engine, 6); count > 0; --count) mutate(input, seeds, engine);
    run(input);
    ++runs;
  }
  std::printf("%lld inputs, no failure\n", static_cast<long long>(runs));
  return 0;
}
