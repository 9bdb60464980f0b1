// Record files under checksums that are right: finds counts and offsets that are believed.

#include <cstring>
#include <filesystem>

#include "fuzz_target.h"
#include "runtime/base/file.h"
#include "runtime/data/images/record_file.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep::fuzz {

std::vector<std::string> seed_inputs() {
  const testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "f").string();
  std::vector<std::string> seeds;
  for (int records = 1; records < 4; ++records) {
    data::RecordWriter writer(path);
    const std::vector<std::byte> pixels(12);
    for (int i = 0; i < records; ++i)
      writer.add(pixels, i, i % 2 == 0 ? data::ImageSize{} : data::ImageSize{2, 2});
    writer.finish(records,
                  records == 2 ? std::vector<std::string>{"a", "b"} : std::vector<std::string>{});
    seeds.push_back(read_file(path, 1 << 20));
  }
  return seeds;
}

}  // namespace lockstep::fuzz

namespace {

// Puts the checksums right, where there is room for them: index and names, then the header.
void mend(std::vector<std::byte>* file) {
  using lockstep::data::checksum_of;
  if (file->size() < 128) return;
  uint64_t index = 0;
  std::memcpy(&index, file->data() + 32, 8);
  const std::span<const std::byte> all(*file);
  if (index <= file->size()) {
    const uint64_t sum = checksum_of(all.subspan(index));
    std::memcpy(file->data() + 56, &sum, 8);
  }
  const uint64_t bytes = file->size();
  std::memcpy(file->data() + 48, &bytes, 8);
  const uint64_t sum = checksum_of(all.first(64));
  std::memcpy(file->data() + 64, &sum, 8);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data),
                              reinterpret_cast<const std::byte*>(data) + size);
  for (int mended = 0; mended < 2; ++mended) {
    fuzz::expect_errors_only([&] {
      const data::RecordIndex index = data::parse_record_file(file, "input");
      if (index.entries.empty()) fuzz::fail("no records");
      for (const data::RecordEntry& entry : index.entries) {
        if (entry.offset > file.size() || entry.bytes > file.size() - entry.offset)
          fuzz::fail("a record lies outside the file");
        if (entry.label < 0 || entry.label >= index.classes) fuzz::fail("a label is no class");
        if (entry.height > 0 && uint64_t{entry.height} * entry.width * 3 != entry.bytes)
          fuzz::fail("pixels have other bytes than their size says");
      }
    });
    mend(&file);
  }
  return 0;
}
