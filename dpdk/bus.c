/* Accesses of registers: loads and stores of a BAR, or commands in the window of a simulated card. */

#include "driver.h"

#include <errno.h>
#include <string.h>

#include <rte_atomic.h>
#include <rte_cycles.h>
#include <rte_io.h>

/* Time without a heartbeat after which a simulated card is gone. One that is stopped in a debugger is, too. */
#define SILENCE_S 10

static struct shotline_command *commands(const struct shotline_bus *bus)
{
	return (struct shotline_command *)(uintptr_t)(bus->base + SHOTLINE_WINDOW_COMMANDS);
}

/* Waits until the card has carried out all commands before `until`. Returns false if it is gone. */
static bool wait_done(struct shotline_bus *bus, uint32_t until)
{
	struct shotline_window_head *head = shotline_head(bus);
	uint32_t beat = __atomic_load_n(&head->heartbeat, __ATOMIC_RELAXED);
	uint64_t limit = rte_get_timer_cycles() + SILENCE_S * rte_get_timer_hz();
	while ((int32_t)(__atomic_load_n(&head->commands_done, __ATOMIC_ACQUIRE) - until) < 0) {
		if (atomic_load_explicit(&bus->gone, memory_order_relaxed))
			return false;
		uint32_t now = __atomic_load_n(&head->heartbeat, __ATOMIC_RELAXED);
		if (now != beat) {
			beat = now;
			limit = rte_get_timer_cycles() + SILENCE_S * rte_get_timer_hz();
		} else if (rte_get_timer_cycles() > limit) {
			LOG(ERR, "the simulated card does not respond for %u s: is it stopped?", SILENCE_S);
			atomic_store(&bus->gone, true);
			return false;
		}
		rte_delay_us_sleep(20); /* the card may need this processor */
	}
	return true;
}

/* Carries out commands in the window, as many at a time as the ring has. */
static int execute(struct shotline_bus *bus, struct shotline_command *list, unsigned count)
{
	struct shotline_window_head *head = shotline_head(bus);
	int result = 0;
	rte_spinlock_lock(&bus->lock);
	for (unsigned begin = 0; begin < count && result == 0; begin += SHOTLINE_COMMANDS) {
		unsigned now = RTE_MIN(count - begin, (unsigned)SHOTLINE_COMMANDS);
		uint32_t given = head->commands_given;
		for (unsigned index = 0; index < now; index++)
			commands(bus)[(given + index) % SHOTLINE_COMMANDS] = list[begin + index];
		__atomic_store_n(&head->commands_given, given + now, __ATOMIC_RELEASE);
		if (!wait_done(bus, given + now)) {
			result = -ENODEV;
			break;
		}
		for (unsigned index = 0; index < now; index++)
			list[begin + index] = commands(bus)[(given + index) % SHOTLINE_COMMANDS];
	}
	rte_spinlock_unlock(&bus->lock);
	return result;
}

void shotline_read_many(struct shotline_bus *bus, const uint16_t *addresses, uint32_t *values, unsigned count)
{
	if (!bus->is_window) {
		for (unsigned index = 0; index < count; index++)
			values[index] = rte_read32(bus->base + addresses[index]);
		return;
	}
	struct shotline_command list[SHOTLINE_COMMANDS];
	for (unsigned begin = 0; begin < count; begin += SHOTLINE_COMMANDS) {
		unsigned now = RTE_MIN(count - begin, (unsigned)SHOTLINE_COMMANDS);
		for (unsigned index = 0; index < now; index++)
			list[index] = (struct shotline_command){ .address = addresses[begin + index], .kind = SHOTLINE_READ };
		int result = execute(bus, list, now);
		for (unsigned index = 0; index < now; index++)
			values[begin + index] = result == 0 ? list[index].answer : UINT32_MAX;
	}
}

uint32_t shotline_read(struct shotline_bus *bus, uint16_t address)
{
	uint32_t value;
	shotline_read_many(bus, &address, &value, 1);
	return value;
}

int shotline_write(struct shotline_bus *bus, uint16_t address, uint32_t value)
{
	if (!bus->is_window) {
		rte_write32(value, bus->base + address);
		return 0;
	}
	struct shotline_command command = { .address = address, .kind = SHOTLINE_WRITE, .value = value };
	int result = execute(bus, &command, 1);
	if (result == 0 && command.status != 0)
		result = -EINVAL;
	return result;
}
