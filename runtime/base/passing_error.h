#pragma once
// Errors that may pass by themselves, such as a full disk: how a rank reports one to `launch`, which
// then starts the ranks again instead of ending the job.

#include <string_view>

namespace lockstep {

// `launch` sets this variable for its ranks.
inline constexpr const char* kUnderLaunchVariable = "LOCKSTEP_UNDER_LAUNCH";
// The exit code of such a rank instead of 2, 3 or 4. EX_IOERR of sysexits.h, as 70 and 75 are
// EX_SOFTWARE and EX_TEMPFAIL.
inline constexpr int kMayPassCode = 74;

// A disk that is full, or over its quota, read-only or broken; a file server that does not answer;
// memory, descriptors or processes that other programs of the host have taken; a limit on the size
// of files, for a write.
bool may_pass(int error_number);
// Whether a message has the text of such an error, as IoError's has, and whatever repeats it; not that
// of the limit, which a file that is read may exceed for ever.
bool may_pass(std::string_view message);

bool under_launch();

// The exit code of a process that ends with `code` because of `message`: kMayPassCode if `launch`
// has started it, the message is of an error that may pass, and the code is that of a config, data,
// checkpoint or run folder.
int exit_code_for(int code, std::string_view message);

}  // namespace lockstep
