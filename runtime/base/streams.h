#pragma once
// The standard output and the standard error stream of a program whose work must not wait for them.

#include <string>
#include <string_view>

#include "runtime/base/output_queue.h"

namespace lockstep {

// Queues for the two; one and the same if both are one file, so that the order stays. They are never
// destroyed.
OutputQueue& standard_error();
OutputQueue& standard_output();

// Text for the standard error stream: log lines and progress. It is dropped if nobody reads.
void print_log(std::string text);
// Text for the standard output: a result. The program fails if it cannot be written: check
// lost_results() at the end.
void print_result(std::string text);
// For programs whose end must not wait for readers: from now on all results go through the queue.
void queue_results();
bool results_are_queued();

// Writes all of `text` however long its reader takes, also if another process has made the descriptor
// non-blocking. False: it cannot, with errno.
bool write_patiently(int descriptor, std::string_view text);

// Waits until all that was printed is written; for 3 s if nobody reads, the next time for 0.2 s. False:
// it is not written. Before anything that ends the process, so that its last words come out.
bool flush_streams();
// From now on flush_streams() waits for 0.2 s: somebody wants the process to end at once.
void hurry_streams();

// What was dropped so far or, after flush_streams(), is not written of results and of the log: "3 lines
// are lost: Broken pipe". Empty: nothing.
std::string lost_results();
std::string lost_log_lines();

// Writes to the standard error stream after all that was printed, with patience. For handlers of
// signals that end the process.
void print_in_handler(std::string_view text);

}  // namespace lockstep
