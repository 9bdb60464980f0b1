#pragma once
// The standard output and standard error streams of a program whose work must not wait for them.

#include <string>
#include <string_view>

#include "runtime/base/output_queue.h"

namespace lockstep {

// The queues of the two streams. If both streams are the same file, there is one queue, to keep the
// order. They are never destroyed.
OutputQueue& standard_error();
OutputQueue& standard_output();

// Prints to the standard error stream: log lines and progress. The text is dropped if nobody reads.
void print_log(std::string text);
// Prints a result to the standard output. The program should fail if it cannot be written: check
// lost_results() at the end.
void print_result(std::string text);
// From now on print_result() queues results too, for programs that must be able to end even if
// nobody reads.
void queue_results();
bool results_are_queued();

// Writes all of `text`, however long the reader takes, even if another process has made the
// descriptor non-blocking. Returns false, with errno, if that fails.
bool write_patiently(int descriptor, std::string_view text);

// Waits until everything printed is written. If nobody reads, it waits for 3 s, and the next time
// for 0.2 s. Returns false if not everything is written. Call it before anything that ends the
// process, so that the last lines are printed.
bool flush_streams();
// From now on flush_streams() waits for 0.2 s, because the user wants the process to end at once.
void hurry_streams();

// The number of lines of results, or of the log, that are dropped or (after flush_streams()) not
// written, with the reason: "3 lines are lost: Broken pipe". Empty if none is lost.
std::string lost_results();
std::string lost_log_lines();

// Prints to the standard error stream after everything that was printed before, within a time
// limit. For handlers of signals that end the process.
void print_in_handler(std::string_view text);

}  // namespace lockstep
