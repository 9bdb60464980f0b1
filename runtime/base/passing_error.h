#pragma once
// Errors that may pass by themselves, such as a full disk. A rank reports one to `launch` through
// its exit code, and `launch` then restarts the ranks instead of ending the job.

#include <string_view>

namespace lockstep {

// `launch` sets this variable for its ranks.
inline constexpr const char* kUnderLaunchVariable = "LOCKSTEP_UNDER_LAUNCH";
// The exit code of a rank that ends with such an error, instead of 2, 3 or 4. It is EX_IOERR of
// sysexits.h, as 70 and 75 are EX_SOFTWARE and EX_TEMPFAIL.
inline constexpr int kMayPassCode = 74;

// Whether the error may pass: a disk that is full, over its quota, read-only or broken; a file
// server that does not answer; memory, descriptors, processes or ports that other programs of the
// host have taken; a limit on file size (EFBIG) during a write.
bool may_pass(int error_number);
// Whether a message contains the text of such an error, as an IoError's message does. EFBIG does
// not count here, because a file that is read may exceed a size limit permanently.
bool may_pass(std::string_view message);

bool under_launch();

// The exit code of a process that ends with `code` because of `message`. It is kMayPassCode if
// `launch` started the process, the error may pass, and `code` is that of a config, data,
// checkpoint or run folder. Otherwise it is `code`.
int exit_code_for(int code, std::string_view message);

}  // namespace lockstep
