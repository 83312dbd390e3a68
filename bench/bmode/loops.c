// Delay and sum by plain loops, a peer of bench/bmode.py. Distances and times are in samples. No pixel's echo may lie outside
// of the samples; without a branch for it the loop is faster. The sizes are macros, which also makes it faster.

#include <math.h>

// The path from a column's pixels to an element is computed once for all waves.
void image(const float *restrict rf, const float *restrict elements, const float *restrict columns, const float *restrict z,
           const float *restrict directions, float *restrict out, float f_number)
{
    float receive[ROWS];
    for (int column = 0; column < COLUMNS; column++) {
        float *restrict sums = out + (long)column * ROWS;
        for (int row = 0; row < ROWS; row++)
            sums[row] = 0;
        for (int element = 0; element < ELEMENTS; element++) {
            const float offset = columns[column] - elements[element];
            int first = 0;
            while (first < ROWS && 2 * f_number * fabsf(offset) > z[first])
                first++;
            for (int row = first; row < ROWS; row++)
                receive[row] = sqrtf(offset * offset + z[row] * z[row]);
            for (int wave = 0; wave < WAVES; wave++) {
                const float *restrict trace = rf + ((long)wave * ELEMENTS + element) * SAMPLES;
                const float along = columns[column] * directions[2 * wave], down = directions[2 * wave + 1];
                for (int row = first; row < ROWS; row++) {
                    const float time = receive[row] + along + z[row] * down;
                    int place = (int)time;
                    place = place < 0 ? 0 : place > SAMPLES - 2 ? SAMPLES - 2 : place;
                    const float here = trace[place];
                    sums[row] += here + (time - (float)place) * (trace[place + 1] - here);
                }
            }
        }
    }
}
