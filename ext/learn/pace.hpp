// Whether several threads are faster than one, just now.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace bpeflow {

// Threads that work on the same list wait for the last of them. Where another process has its core, that is until the
// kernel gives it one again: milliseconds for what takes microseconds. (On two cores, one of them taken, learning took
// up to 4.7 s instead of 0.2.) What other processes do, nobody tells us; so both ways are timed, the better one is taken,
// and now and then the other one is tried. What is learned does not depend on it.
class Pace {
  public:
    // Whether to use several threads for the next list.
    bool several() {
        trying_ = until_trial_ == 0;
        if (!trying_) until_trial_--;
        return several_better_ != trying_;
    }

    // The list had so many entries and took so long.
    void took(bool several, std::chrono::duration<double> time, std::size_t entries) {
        const double each = time.count() / static_cast<double>(entries);
        double &known = each_[several];
        known = trying_ ? each : 0.75 * known + 0.25 * each;
        const bool several_better = each_[true] < each_[false];
        if (several_better != several_better_)
            interval_ = shortest;
        else if (trying_)
            interval_ = std::min(interval_ * 2, longest);
        if (trying_ || several_better != several_better_) until_trial_ = interval_;
        several_better_ = several_better;
    }

  private:
    // Lists between two trials. With fewer, trials that cost milliseconds add up; with more, a long run misses that the
    // cores are free again.
    static constexpr unsigned shortest = 16, longest = 1024;

    double each_[2] = {20e-9, 10e-9}; // seconds for an entry, by one thread and by several: a guess to begin with
    bool several_better_ = true, trying_ = false;
    unsigned interval_ = shortest, until_trial_ = shortest;
};

} // namespace bpeflow
