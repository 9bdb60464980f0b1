#include "launcher/calibrate/machine_rates.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/base/time.h"

namespace lockstep::launcher {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// A file that is closed and removed at the end.
class ScratchFile {
 public:
  explicit ScratchFile(std::filesystem::path path) : path_(std::move(path)) {
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file_ < 0) throw IoError("create", path_, errno);
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() {
    ::close(file_);
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

  void write(const std::vector<char>& block) {
    size_t done = 0;
    while (done < block.size()) {
      const ssize_t written = ::write(file_, block.data() + done, block.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) throw IoError("write", path_, errno);
      done += static_cast<size_t>(written);
    }
  }
  void sync() {
    if (::fsync(file_) != 0) throw IoError("sync", path_, errno);
  }
  // Reads a block at `offset`.
  void read(std::vector<char>& block, size_t offset) {
    size_t done = 0;
    while (done < block.size()) {
      const ssize_t got = ::pread(
          file_, block.data() + done, block.size() - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) throw IoError("read", path_, errno);
      done += static_cast<size_t>(got);
    }
  }
  // Asks the system to drop its copy in memory. Whether it has.
  bool drop_copy(size_t bytes) {
    ::posix_fadvise(file_, 0, 0, POSIX_FADV_DONTNEED);
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file_, 0);
    if (mapped == MAP_FAILED) return false;
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> present(bytes / page);
    const bool known = ::mincore(mapped, bytes, present.data()) == 0;
    ::munmap(mapped, bytes);
    return known && std::ranges::none_of(present, [](unsigned char byte) { return byte & 1; });
  }

 private:
  const std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace

double measure_copy_gbytes_per_s() {
  constexpr size_t kBytes = 256 * kMiB;  // larger than caches
  constexpr int kRepeats = 5;
  std::vector<char> from(kBytes, 1), to(kBytes, 2);
  double best_ms = 1e30;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double start = now_ms();
    parallel_for(static_cast<int64_t>(kBytes / kMiB), 1, [&](int64_t begin, int64_t end) {
      std::memcpy(to.data() + static_cast<size_t>(begin) * kMiB,
                  from.data() + static_cast<size_t>(begin) * kMiB,
                  static_cast<size_t>(end - begin) * kMiB);
    });
    best_ms = std::min(best_ms, now_ms() - start);
  }
  return 2.0 * kBytes / (best_ms * 1e6);
}

DiskRates measure_disk(const std::filesystem::path& folder) {
  constexpr size_t kBlocks = 64;
  std::vector<char> block(4 * kMiB);
  // No file system may store it in fewer bytes.
  uint64_t state = 88172645463325252U;
  for (size_t i = 0; i + sizeof(state) <= block.size(); i += sizeof(state)) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(block.data() + i, &state, sizeof(state));
  }
  const double bytes = static_cast<double>(kBlocks * block.size());
  ScratchFile file(folder / "disk_rate");
  DiskRates rates;
  double start = now_ms();
  for (size_t i = 0; i < kBlocks; ++i) file.write(block);
  file.sync();
  rates.write_gbytes_per_s = bytes / ((now_ms() - start) * 1e6);
  if (!file.drop_copy(kBlocks * block.size())) return rates;
  start = now_ms();
  for (size_t i = 0; i < kBlocks; ++i) file.read(block, i * block.size());
  rates.read_gbytes_per_s = bytes / ((now_ms() - start) * 1e6);
  return rates;
}

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))); }

}  // namespace lockstep::launcher
