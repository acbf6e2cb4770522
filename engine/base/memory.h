// How much memory this process holds and has held, in bytes (Linux, from /proc/self/status).
//
//   peak_rss_bytes         VmHWM: the most pages that were resident at once, kept by the kernel, exact.
//                          Mapped files count while their pages are resident, so a big model that is
//                          only mapped raises it.
//   peak_anonymous_bytes   RssAnon at its highest: memory that was allocated (heap, stacks), without
//                          mapped files. The kernel keeps no maximum, so it is sampled: by a thread
//                          every 10 ms once sampling was started, and at each call. A peak that is
//                          shorter than that can be missed.
//
// All give 0 where the kernel does not tell.
#pragma once

#include <cstdint>

namespace pare {

std::int64_t peak_rss_bytes();
std::int64_t current_anonymous_bytes();
std::int64_t peak_anonymous_bytes();

// As peak_anonymous_bytes, but of the time since the last restart_recent_peak(): what one step takes. One a
// process; 0 before the first restart.
void restart_recent_peak();
std::int64_t recent_peak_anonymous_bytes();

// Gives memory that was freed back to the system once 32 MB more are held than after the last time. Batches
// of ever other shapes leave holes that fit none of the next: a pass over 180 widths held 510 MB where 160
// were in use.
void release_freed_memory();

// From here on freed memory stays with the process (glibc; nothing elsewhere): for work that takes and frees
// the same large buffers again and again, where the system's giving and taking back of their pages costs a
// fifth of the time. A process then holds the most that was in use at once, as before, and what falls between
// buffers of other sizes.
void keep_freed_memory();

void start_memory_sampling();  // once a process; further calls do nothing

// Physical memory this process may use (the cgroup's limit considered).
std::int64_t total_memory_bytes();

}  // namespace pare
