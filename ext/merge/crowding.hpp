// Whether the other cores are free for our threads.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace bpeflow {

// Threads that work on the same list wait for the last of them. If another process has its core, that is until the
// kernel gives it one again, milliseconds for what takes microseconds: on two cores, one of them taken, learning took 4.7
// s instead of 0.2. So when it has taken far too long, some lists are left to one thread before it is tried again, and
// more of them each time. What is learned does not depend on it.
class Crowding {
  public:
    // Whether to use several threads for the next list that is long enough for them.
    bool leaves_room() {
        if (alone_ == 0) return true;
        alone_--;
        return false;
    }

    // Several threads took so long for a list of so many entries.
    void took(std::chrono::duration<double> time, std::size_t entries) {
        if (time.count() > base + each * static_cast<double>(entries)) {
            alone_ = pause_;
            pause_ = std::min(pause_ * 2, longest);
        } else {
            pause_ = std::max(pause_ / 2, shortest);
        }
    }

  private:
    // In seconds. Four times what one thread takes for an entry, and what a fifth of a time slice is. Smaller ones would
    // take a page fault for another process; larger ones would be above what waiting costs.
    static constexpr double base = 300e-6, each = 50e-9;
    // With fewer lists left alone, the waiting adds up; with more, a long run misses that the cores are free again.
    static constexpr unsigned shortest = 16, longest = 1024;

    unsigned alone_ = 0; // lists still to be left to one thread
    unsigned pause_ = shortest;
};

} // namespace bpeflow
