#include "engine/base/cancel.h"

#include <signal.h>

#include <atomic>

#include "engine/base/error.h"

namespace pare {

namespace {

std::atomic<bool> requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

extern "C" void pare_on_cancel_signal(int) { request_cancel(); }

}  // namespace

void check_cancelled() {
  if (cancel_requested()) throw make_error(ErrorCode::kInterrupted, "interrupted");
}

bool cancel_requested() noexcept { return requested.load(std::memory_order_relaxed); }
void request_cancel() noexcept { requested.store(true, std::memory_order_relaxed); }
void clear_cancel() noexcept { requested.store(false, std::memory_order_relaxed); }

void install_cancel_signals() {
  struct sigaction action {};
  action.sa_handler = pare_on_cancel_signal;
  sigemptyset(&action.sa_mask);
  // SA_RESETHAND: the second signal meets the default action. SA_RESTART: no system call fails for it.
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

}  // namespace pare
