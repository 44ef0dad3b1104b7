"""Who is told what happens: events of the journal and alarms, to chat services, mail and webhooks."""
