// Stopping at the user's wish. A signal handler sets a flag; loops over batches, nodes and files ask
// check_cancelled() between pieces of work, and unwinding removes temporaries on the way out.
#pragma once

namespace pare {

void check_cancelled();  // Error kInterrupted if cancellation was asked for

bool cancel_requested() noexcept;
void request_cancel() noexcept;  // safe in a signal handler
void clear_cancel() noexcept;    // for tests

// SIGINT and SIGTERM ask for cancellation; a second one ends the process at once, as without a handler.
void install_cancel_signals();

}  // namespace pare
