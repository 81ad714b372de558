package main

import (
	"encoding/json"
	"errors"
)

// A sum has the figures of one carrier. An output line is its JSON.
type sum struct {
	Carrier      string `json:"carrier"`
	Flights      int64  `json:"flights"`
	WithDelay    int64  `json:"with_delay"`
	DelayMinutes int64  `json:"delay_minutes"`
}

// A reject is a line that is not a flight.
type reject struct {
	index  int
	reason error
}

// summarize sums flights, one JSON object a line, by carrier.
func summarize(lines [][]byte) (map[string]*sum, []reject) {
	sums := map[string]*sum{}
	var rejects []reject
	for index, line := range lines {
		carrier, delay, err := readFlight(line)
		if err != nil {
			rejects = append(rejects, reject{index, err})
			continue
		}
		one := sums[carrier]
		if one == nil {
			one = &sum{Carrier: carrier}
			sums[carrier] = one
		}
		one.Flights++
		if delay != nil {
			one.WithDelay++
			one.DelayMinutes += *delay
		}
	}
	return sums, rejects
}

func readFlight(line []byte) (carrier string, delay *int64, err error) {
	var flight struct {
		Carrier *string `json:"carrier"`
		// Minutes; null for a cancelled flight.
		DepDelay *int64 `json:"dep_delay"`
	}
	if err := json.Unmarshal(line, &flight); err != nil {
		return "", nil, err
	}
	if flight.Carrier == nil {
		return "", nil, errors.New("no carrier")
	}
	return *flight.Carrier, flight.DepDelay, nil
}
