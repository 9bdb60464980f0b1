// Catches: a full disk that ends a job which `launch` supervises, a user's error that it tries
// again and again, and another exit code than the documented one without `launch`.
#include "runtime/base/passing_error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>

#include "runtime/base/error.h"

namespace lockstep {
namespace {

class ExitCodeFor : public ::testing::Test {
 protected:
  ExitCodeFor() { ::setenv(kUnderLaunchVariable, "1", 1); }
  ~ExitCodeFor() override { ::unsetenv(kUnderLaunchVariable); }
};

TEST_F(ExitCodeFor, IsOfItsOwnForDisksThatFailForNow) {
  for (const int error : {ENOSPC, EDQUOT, EIO, EROFS, ESTALE, ETIMEDOUT, EMFILE, ENFILE, ENOMEM}) {
    const IoError io("write", "/data/x", error);
    const DataError wrapped("rank 1: data.train: {}", io.what());
    EXPECT_EQ(exit_code_for(static_cast<int>(io.code()), io.what()), kMayPassCode) << io.what();
    EXPECT_EQ(exit_code_for(static_cast<int>(wrapped.code()), wrapped.what()), kMayPassCode);
    EXPECT_EQ(exit_code_for(2, ConfigError("config: {}", io.what()).what()), kMayPassCode);
  }
}

TEST_F(ExitCodeFor, StaysForWhatEveryStartWouldEndWith) {
  for (const int error : {ENOENT, EACCES, EPERM, EISDIR, ENAMETOOLONG, ELOOP, EFBIG})
    EXPECT_EQ(exit_code_for(4, IoError("open", "/x", error).what()), 4);
  EXPECT_EQ(exit_code_for(3, "x.idx: has 3 bytes where 16 are expected"), 3);
}

TEST_F(ExitCodeFor, StaysForOtherKinds) {
  const IoError io("connect", "node1", ETIMEDOUT);
  for (const int code : {0, 5, 6, 7, 70, 75}) EXPECT_EQ(exit_code_for(code, io.what()), code);
}

TEST(ExitCodeWithoutLaunch, Stays) {
  ::unsetenv(kUnderLaunchVariable);
  EXPECT_EQ(exit_code_for(4, IoError("write", "/x", ENOSPC).what()), 4);
}

}  // namespace
}  // namespace lockstep
