// Tar files and the index of their samples: finds reads outside the file, sizes that are believed,
// and members or samples that do not lie in it.

#include "fuzz_target.h"
#include "runtime/data/images/image.h"
#include "runtime/data/images/tar.h"
#include "runtime/data/images/tar_index.h"
#include "tests/unit/data/tars.h"

namespace lockstep::fuzz {

std::vector<std::string> seed_inputs() {
  using test::tar_end;
  using test::tar_member;
  return {
      test::tar_of({{"a.jpg", "jpeg"}, {"a.cls", "3"}, {"b.cls", "1"}, {"b.png", "p"}}),
      tar_member("././@LongLink", std::string(150, 'n') + ".jpg", 'L') + tar_member("n", "data"),
      tar_member("x", "16 path=a/b.jpg\n10 size=4\n", 'x') + tar_member("n", "data") + tar_end(),
      tar_member("n.jpg", "j", '0', "prefix") + tar_member("l", "", '2'),
  };
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data),
                                    reinterpret_cast<const std::byte*>(data) + size);
  const auto check = [&file](const std::byte* begin, size_t bytes) {
    if (bytes == 0) return;
    if (begin < file.data() || begin + bytes > file.data() + file.size())
      fuzz::fail("a member lies outside the file");
  };
  fuzz::expect_errors_only([&] {
    data::TarReader reader(file, "input");
    data::TarMember member;
    while (reader.next(&member)) check(member.data.data(), member.data.size());
  });
  fuzz::expect_errors_only([&] {
    const auto good = [&](const data::TarSample& sample) {
      check(file.data() + sample.offset, sample.bytes);
      if (sample.label < 0 || sample.label >= data::kMaxClasses)
        fuzz::fail("a class beyond the limit");
    };
    data::index_tar(file, "input", 0, good, [](const std::string&) {});
  });
  return 0;
}
