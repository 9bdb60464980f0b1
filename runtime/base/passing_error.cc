#include "runtime/base/passing_error.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "runtime/base/error.h"

namespace lockstep {
namespace {

constexpr std::array kMayPass = {EIO,
                                 ENOSPC,
                                 EDQUOT,
                                 EROFS,
                                 ESTALE,
                                 ETIMEDOUT,
                                 EREMOTEIO,
                                 ENOTCONN,
                                 EHOSTDOWN,
                                 EHOSTUNREACH,
                                 ENETDOWN,
                                 ENETUNREACH,
                                 ENOMEM,
                                 ENOBUFS,
                                 EMFILE,
                                 ENFILE,
                                 EAGAIN,
                                 EBUSY,
                                 EADDRINUSE};

}  // namespace

bool may_pass(int error_number) {
  return error_number == EFBIG ||
         std::find(kMayPass.begin(), kMayPass.end(), error_number) != kMayPass.end();
}

bool may_pass(std::string_view message) {
  return std::any_of(kMayPass.begin(), kMayPass.end(), [&](int error_number) {
    return message.find(std::strerror(error_number)) != std::string_view::npos;
  });
}

bool under_launch() { return std::getenv(kUnderLaunchVariable) != nullptr; }

int exit_code_for(int code, std::string_view message) {
  const auto is = [&](ExitCode other) { return code == static_cast<int>(other); };
  const bool concerned = is(ExitCode::kUsage) || is(ExitCode::kData) || is(ExitCode::kCheckpoint);
  return concerned && under_launch() && may_pass(message) ? kMayPassCode : code;
}

}  // namespace lockstep
